import { mergeConfig } from "vite";
import base from "./vite.config";
export default mergeConfig(base, { define: { "import.meta.env.DEV": "true" }, build: { minify: false } });
