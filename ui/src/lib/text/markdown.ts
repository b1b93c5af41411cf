/**
 * The agent's Markdown as blocks of safe DOM. Three walls: raw HTML is shown as the text it is, images become their words, links
 * lose their target (it is kept as data and opened only after the person has seen it); then DOMPurify keeps a short list of tags.
 * Blocks are rendered one by one, so that text that still streams in only redraws its last block.
 */
import DOMPurify from "dompurify";
import { Marked, type Token, type Tokens } from "marked";
import { showBidi } from "./bidi";

const TAGS = ["p", "br", "strong", "em", "del", "code", "pre", "ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "hr", "table", "thead", "tbody", "tr", "th", "td", "a"];

const escape = (text: string) => text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);

/** The target as it would open, or null where a link must stay text. */
export function linkTarget(href: string): string | null {
  let url: URL;
  try {
    url = new URL(href);
  } catch {
    return null;
  }
  return url.protocol === "http:" || url.protocol === "https:" || url.protocol === "mailto:" ? url.href : null;
}

const marked = new Marked({
  gfm: true,
  breaks: false,
  renderer: {
    html: ({ text }: Tokens.HTML | Tokens.Tag) => escape(text),
    image: ({ text, href }: Tokens.Image) => escape(text === "" ? href : text),
    checkbox: ({ checked }: Tokens.Checkbox) => (checked ? "☑ " : "☐ "),
    link({ href, tokens }: Tokens.Link) {
      const words = this.parser.parseInline(tokens);
      const target = linkTarget(href);
      return target === null ? words : `<a role="link" tabindex="0" data-href="${escape(target)}">${words}</a>`;
    },
  },
});

export type Block = { key: number; html: string };

/** Longer text is not read as Markdown. */
const MOST_TEXT = 200_000;
/** Quotes and lists in each other, more than anyone can read: the parser calls itself for each. */
const TOO_DEEP = /^(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))){24}|^[ \t]{80,}(?:>|[-*+] |\d{1,9}[.)] )/m;
/** More signs than this in one paragraph: what each begins and what ends it would be looked for among all the others. */
const MOST_SIGNS = 1_000;

/** Whether the parser would take too long, or give up. */
function isTangled(text: string): boolean {
  if (text.length > MOST_TEXT || TOO_DEEP.test(text)) return true;
  if (text.length <= MOST_SIGNS) return false;
  return text.split(/\n[ \t]*\n/).some((part) => part.length > MOST_SIGNS && (part.match(/[*_~`[\]<&]/g)?.length ?? 0) > MOST_SIGNS);
}

/** What is no Markdown, or only in order to do harm, is shown as it came. */
export function renderMarkdown(text: string): Block[] {
  const clean = showBidi(text);
  if (isTangled(clean)) return asItIs(clean);
  try {
    return marked
      .lexer(clean)
      .filter((token: Token) => token.type !== "space" && token.type !== "def")
      .map((token: Token, key: number) => ({ key, html: marked.parser([token]) }));
  } catch {
    return asItIs(clean);
  }
}

function asItIs(text: string): Block[] {
  return [{ key: 0, html: `<pre><code>${escape(text)}</code></pre>` }];
}

export function sanitise(html: string): DocumentFragment {
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ["data-href", "role", "tabindex", "start", "align"],
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
}
