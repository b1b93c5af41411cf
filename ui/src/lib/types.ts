/** The engine's words, for everything that draws or computes and must not talk to the engine itself. */
export type * from "./ipc/bindings";
