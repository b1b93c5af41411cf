import js from "@eslint/js";
import importX, { createNodeResolver } from "eslint-plugin-import-x";
import svelte from "eslint-plugin-svelte";
import globals from "globals";
import { readdirSync } from "node:fs";
import ts from "typescript-eslint";

/* The walls: which folder may import which. Features never import each other; what they share lives in lib/ or components/. */
const features = readdirSync("src/features");
const zones = [
  ...features.map((name) => ({ target: `./src/features/${name}`, from: "./src/features", except: [`./${name}`], message: "Features never import each other." })),
  { target: "./src/components", from: "./src/lib/ipc", message: "Components have no IPC: props in, callbacks out." },
  { target: "./src/components", from: "./src/lib/state", message: "Components have no state of the application: props in, callbacks out." },
  { target: "./src/components", from: "./src/features", message: "Components know no feature." },
  { target: "./src/lib", from: "./src/features", message: "lib/ is below the features." },
  { target: "./src/lib", from: "./src/components", message: "lib/ draws nothing." },
];

export default ts.config(
  { ignores: ["dist/", "src/paraglide/", "project.inlang/", "src/lib/ipc/bindings.ts"] },
  js.configs.recommended,
  ...ts.configs.strict,
  ...svelte.configs.recommended,
  {
    // Given to every file: the parser of an imported component needs it as well.
    languageOptions: { globals: globals.browser, parserOptions: { parser: ts.parser, extraFileExtensions: [".svelte"] } },
    plugins: { "import-x": importX },
    settings: {
      "import-x/resolver-next": [createNodeResolver({ extensions: [".ts", ".svelte", ".js"] })],
      "import-x/parsers": { "@typescript-eslint/parser": [".ts"], "svelte-eslint-parser": [".svelte"] },
      "import-x/ignore": ["node_modules", "src/paraglide"],
      "import-x/extensions": [".ts", ".svelte", ".js"],
    },
    rules: {
      "import-x/no-restricted-paths": ["error", { zones }],
      "import-x/no-cycle": ["error", { ignoreExternal: true }],
      "no-restricted-imports": ["error", { patterns: [{ group: ["@tauri-apps/*"], message: "Only lib/ipc/ talks to Tauri." }] }],
      "no-undef": "off",
      "no-eval": "error",
      "no-implied-eval": "error",
      "@typescript-eslint/consistent-type-imports": "error",
      "svelte/no-at-html-tags": "error",
      "svelte/require-each-key": "error",
      // State is replaced, not mutated; a map inside a function or kept on purpose outside reactivity is an ordinary map.
      "svelte/prefer-svelte-reactivity": "off",
      // {" "} is how a space between two blocks is written.
      "svelte/no-useless-mustaches": "off",
      "svelte/no-unused-svelte-ignore": "off",
    },
  },
  { files: ["src/lib/ipc/**"], rules: { "no-restricted-imports": "off" } },
);
