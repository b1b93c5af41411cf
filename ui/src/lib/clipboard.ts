/**
 * Copies a text that has to be fetched first. WebKit lets a page write to the clipboard only while it answers a click, which is
 * over once the text is there; so the clipboard is given the promise.
 */
export async function copyFetched(fetching: Promise<string>): Promise<void> {
  if (typeof ClipboardItem === "undefined") {
    await navigator.clipboard.writeText(await fetching);
    return;
  }
  const blob = fetching.then((text) => new Blob([text], { type: "text/plain" }));
  try {
    await navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]);
  } catch (thrown) {
    // What kept the text from being fetched says more than that nothing was copied.
    await fetching;
    throw thrown;
  }
}
