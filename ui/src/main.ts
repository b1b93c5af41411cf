import "@fontsource-variable/inter";
import "@fontsource-variable/jetbrains-mono";
import "./styles/tokens.css";
import "./styles/base.css";
import { mount } from "svelte";
import App from "./App.svelte";
import { connect } from "./lib/ipc/connect";
import { Courier } from "./lib/state/courier.svelte";

// Before anything is drawn: a dark window must not flash light, nor the reverse. The settings follow.
document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";

const target = document.getElementById("app");
if (target !== null) mount(App, { target, props: { courier: new Courier(await connect()) } });
