// node conformance.mjs drive BASE TOKEN BRANCH…   asks the server as GitHub's own client does, and checks its answers
// node conformance.mjs validate FILE…             holds recorded requests and answers against GitHub's description
//
// The first prints a line per step, the second one per file; both end with 0 only if everything was as it should be.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [what, ...rest] = process.argv.slice(2);
if (what === "drive") await drive(...rest);
else if (what === "validate") await validate(...rest);
else throw new Error(`not known: ${what}`);

async function drive(baseUrl, auth, branch, second, empty) {
  const { Octokit } = await import("@octokit/rest");
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const octokit = new Octokit({ baseUrl, auth, log });
  const repo = { owner: "owner", repo: "name" };
  const step = async (name, run) => {
    await run();
    console.log(`ok ${name}`);
  };
  const refused = async (status, words, run) => {
    const error = await run().then(() => undefined, (error) => error);
    assert.equal(error?.status, status, `expected ${status}: ${error}`);
    assert.match(error.message, words);
    return error;
  };

  await step("the repository's facts", async () => {
    const { data, headers } = await octokit.repos.get(repo);
    assert.equal(data.default_branch, "main");
    assert.equal(data.permissions.push, true);
    assert.ok(Number(headers["x-ratelimit-remaining"]) > 0);
  });
  await step("no pull request yet", async () => {
    const { data } = await octokit.pulls.list({ ...repo, head: `owner:${branch}`, state: "open" });
    assert.deepEqual(data, []);
  });
  const { data: first } = await octokit.pulls.create({ ...repo, title: "First", body: "words", head: branch, base: "main", draft: true });
  await step("a draft is made", async () => {
    assert.equal(first.state, "open");
    assert.equal(first.draft, true);
    assert.equal(first.head.ref, branch);
    assert.match(first.html_url, /\/owner\/name\/pull\/1$/);
  });
  await step("what GitHub refuses is refused", async () => {
    await refused(422, /already exists/, () => octokit.pulls.create({ ...repo, title: "Again", head: branch, base: "main" }));
    await refused(422, /No commits between/, () => octokit.pulls.create({ ...repo, title: "Empty", head: empty, base: "main" }));
    await refused(422, /invalid/, () => octokit.pulls.create({ ...repo, title: "None", head: "no/such", base: "main" }));
    await refused(422, /too long/, () => octokit.pulls.create({ ...repo, title: "x".repeat(257), head: second, base: "main" }));
    await refused(404, /Not Found/, () => octokit.pulls.get({ ...repo, pull_number: 99 }));
    await refused(404, /Not Found/, () => octokit.repos.get({ owner: "owner", repo: "other" }));
    await refused(401, /Bad credentials/, () => new Octokit({ baseUrl, auth: "wrong", log }).repos.get(repo));
  });
  await octokit.pulls.create({ ...repo, title: "Second", head: second, base: "main" });
  await step("pages are linked", async () => {
    const all = await octokit.paginate(octokit.pulls.list, { ...repo, state: "all", per_page: 1 });
    assert.deepEqual(all.map((pull) => pull.number).sort(), [1, 2]);
    const found = await octokit.pulls.list({ ...repo, head: `owner:${branch}`, state: "open" });
    assert.deepEqual(found.data.map((pull) => pull.number), [1]);
  });
  await step("what has not changed is not sent", async () => {
    const query = { ...repo, state: "all", sort: "updated", direction: "desc" };
    const { headers } = await octokit.pulls.list(query);
    const again = () => octokit.pulls.list({ ...query, headers: { "if-none-match": headers.etag } });
    const error = await refused(304, /.*/, again);
    assert.equal(error.response?.headers["x-ratelimit-remaining"], headers["x-ratelimit-remaining"], "and costs nothing");
    await octokit.pulls.update({ ...repo, pull_number: 1, title: "First, edited" });
    const changed = await again();
    assert.equal(changed.data[0].title, "First, edited");
  });
  await step("one is closed and opened again", async () => {
    const closed = await octokit.pulls.update({ ...repo, pull_number: 2, state: "closed" });
    assert.equal(closed.data.state, "closed");
    assert.ok(closed.data.closed_at);
    assert.equal(closed.data.merged, false);
    const opened = await octokit.pulls.update({ ...repo, pull_number: 2, state: "open" });
    assert.equal(opened.data.state, "open");
  });
}

async function validate(...files) {
  const { default: Ajv } = await import("ajv");
  const { default: addFormats } = await import("ajv-formats");
  const require = createRequire(import.meta.url);
  const description = JSON.parse(readFileSync(require.resolve("@octokit/openapi").replace(/index\.js$/, "generated/api.github.com.json")));
  const ajv = new Ajv({ strict: false, allErrors: true, coerceTypes: false, logger: false, validateSchema: false });
  addFormats(ajv);
  ajv.addSchema({ $id: "github", ...asJsonSchema({ components: description.components, paths: description.paths }) });
  let problems;
  const check = (pointer, value, about) => {
    const valid = ajv.getSchema(`github#${pointer}`);
    assert.ok(valid, `no schema at ${pointer}`);
    if (!valid(value)) problems.push(`${about}: ${ajv.errorsText(valid.errors.slice(0, 5))}`);
  };
  const templates = Object.keys(description.paths).map((path) => {
    const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
    return { path, names, pattern: new RegExp(`^${path.replaceAll(/\{\w+\}/g, "([^/]+)")}$`) };
  });
  const resolve = (value) => (value.$ref ? value.$ref.slice(2).split("/").reduce((at, key) => at[key], description) : value);
  // Answers that any operation may give, described or not.
  const common = [301, 401, 403, 404, 410, 429, 500, 502, 503];

  for (const file of files) {
    const exchanges = JSON.parse(readFileSync(file));
    assert.ok(exchanges.length > 0, "nothing was recorded");
    problems = [];
    for (const [number, exchange] of exchanges.entries()) judge(number, exchange);
    for (const problem of problems) console.error(problem);
    console.log(`${exchanges.length} exchanges, ${problems.length} problems`);
    if (problems.length > 0) process.exitCode = 1;
  }

  function judge(number, exchange) {
    const { method, path, query, request, status, answer } = exchange;
    const about = `${number + 1}. ${method} ${path}${query && `?${query}`} → ${status}`;
    const matching = templates.filter(({ pattern }) => pattern.test(path));
    const template = matching.sort((a, b) => a.names.length - b.names.length)[0];
    const operation = template && description.paths[template.path][method.toLowerCase()];
    if (!operation) {
      problems.push(`${about}: GitHub has no such operation`);
      return;
    }
    const place = `/paths/${escaped(template.path)}/${method.toLowerCase()}`;

    const parameters = (operation.parameters ?? []).map(resolve);
    for (const [name, value] of new URLSearchParams(query)) {
      const parameter = parameters.find((parameter) => parameter.in === "query" && parameter.name === name);
      if (!parameter) problems.push(`${about}: no parameter ${name}`);
      else {
        const typed = resolve(parameter.schema).type === "integer" ? Number(value) : value;
        const valid = ajv.compile(asJsonSchema(resolve(parameter.schema)));
        if (!valid(typed)) problems.push(`${about}: ${name}=${value}: ${ajv.errorsText(valid.errors)}`);
      }
    }
    if (request !== null) {
      const schema = operation.requestBody?.content["application/json"].schema;
      if (!schema) problems.push(`${about}: it takes no body`);
      else {
        check(`${place}/requestBody/content/application~1json/schema`, request, `${about}, request`);
        const known = Object.keys(resolve(schema).properties ?? {});
        // Everything may be sent; what is not described does nothing.
        for (const name of Object.keys(request)) if (!known.includes(name)) problems.push(`${about}: no property ${name}`);
      }
    }

    const described = operation.responses[status];
    if (status === 304) {
      if (answer !== null) problems.push(`${about}: it has a body`);
    } else if (described && resolve(described).content) {
      const at = described.$ref ? described.$ref.slice(1) : `${place}/responses/${status}`;
      check(`${at}/content/application~1json/schema`, answer, `${about}, answer`);
    } else if (described || common.includes(status)) {
      check("/components/schemas/basic-error", answer, `${about}, answer`);
      if (typeof answer?.message !== "string") problems.push(`${about}: it has no message`);
    } else problems.push(`${about}: GitHub does not answer so`);
  }
}

/** OpenAPI 3.0 says `nullable` where JSON Schema has a type. */
function asJsonSchema(value) {
  if (Array.isArray(value)) return value.map(asJsonSchema);
  if (value === null || typeof value !== "object") return value;
  const { nullable, example, examples, ...kept } = value;
  const schema = Object.fromEntries(Object.entries(kept).map(([key, inner]) => [key, asJsonSchema(inner)]));
  // A property may have the name of a keyword.
  for (const [name, inner] of Object.entries({ nullable, example, examples })) {
    if (inner !== null && typeof inner === "object" && ("type" in inner || "$ref" in inner)) schema[name] = asJsonSchema(inner);
  }
  if (nullable !== true) return schema;
  if (typeof schema.type !== "string") return { anyOf: [{ type: "null" }, schema] };
  return { ...schema, type: [schema.type, "null"], ...(schema.enum && { enum: [...schema.enum, null] }) };
}

function escaped(key) {
  return encodeURIComponent(key.replaceAll("~", "~0").replaceAll("/", "~1"));
}
