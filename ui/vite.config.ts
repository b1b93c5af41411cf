import { paraglideVitePlugin } from "@inlang/paraglide-js";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { svelteTesting } from "@testing-library/svelte/vite";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [
    paraglideVitePlugin({
      project: "./project.inlang",
      outdir: "./src/paraglide",
      outputStructure: "locale-modules",
      strategy: ["preferredLanguage", "baseLocale"],
    }),
    svelte(),
    svelteTesting(),
  ],
  server: { port: 1420, strictPort: true },
  build: {
    outDir: "dist",
    // WebKitGTK, WKWebView and WebView2 of the systems we support.
    target: ["safari16.4", "chrome111"],
    // The content security policy allows no inline script, and fonts stay files.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
  },
  test: {
    environment: "jsdom",
    include: ["src/**/*.test.ts"],
    setupFiles: ["src/testSetup.ts"],
    server: { deps: { inline: ["@lucide/svelte"] } },
  },
});
