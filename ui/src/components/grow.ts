import type { Attachment } from "svelte/attachments";

/** A text field that grows with its text from `least` to `most` pixels, then scrolls. `text` is read so that it follows every change. */
export function grow(text: () => string, least: number, most: number): Attachment<HTMLTextAreaElement> {
  return (node) => {
    void text();
    node.style.height = "auto";
    node.style.height = `${Math.min(most, Math.max(least, node.scrollHeight))}px`;
  };
}
