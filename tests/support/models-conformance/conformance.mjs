// node conformance.mjs BASE     asks the scripted models as OpenAI's own client does, and checks what it makes of them
//
// BASE is the server's address without a path. Prints a line per step and ends with 0 only if all was as it should be.

import assert from "node:assert/strict";
import OpenAI, {
  APIConnectionError, APIError, AuthenticationError, BadRequestError, InternalServerError, PermissionDeniedError, RateLimitError,
} from "openai";

const [base] = process.argv.slice(2);
const model = "mock-model";
const client = (scenario) => new OpenAI({ baseURL: `${base}/s/${scenario}/v1`, apiKey: "sk-test", maxRetries: 0, logLevel: "off" });
const step = async (name, run) => {
  await run();
  console.log(`ok ${name}`);
};

const parameters = {
  type: "object", properties: { command: { type: "string" } }, required: ["command"], additionalProperties: false,
};
const shell = { type: "function", name: "shell_command", description: "Runs a command", parameters, strict: true };
const patch = { type: "custom", name: "apply_patch", description: "Changes files" };
const question = {
  model, input: [{ role: "user", content: "Add a greeting" }], tools: [shell, patch], reasoning: { effort: "low", summary: "auto" },
};
const bash = { type: "function", function: { name: "bash", description: "Runs a command", parameters, strict: true } };
const chat = { model, messages: [{ role: "user", content: "Add a greeting" }], tools: [bash] };

await step("models are listed", async () => {
  const { data } = await client("happy").models.list();
  assert.deepEqual(data.map((found) => found.id), [model]);
});

await step("responses: text, thoughts and both kinds of tools are streamed", async () => {
  const input = [...question.input];
  const kinds = [];
  const usages = [];
  for (let turn = 0; turn < 3; turn += 1) {
    const stream = client("happy").responses.stream({ ...question, input });
    const events = [];
    let text = "";
    let thought = "";
    for await (const event of stream) {
      events.push(event);
      if (event.type === "response.output_text.delta") text += event.delta;
      if (event.type === "response.reasoning_summary_text.delta") thought += event.delta;
    }
    assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, index) => index), "numbered without a gap");
    assert.equal(events[0].type, "response.created");
    assert.equal(events.at(-1).type, "response.completed");
    const response = await stream.finalResponse();
    assert.equal(response.status, "completed");
    assert.equal(response.output_text, text, "the pieces are the whole");
    const reasoning = response.output.find((item) => item.type === "reasoning");
    assert.equal(reasoning?.summary[0].text ?? "", thought);
    const calls = response.output.filter((item) => item.type.endsWith("_call"));
    kinds.push(calls.map((call) => call.type));
    usages.push(response.usage);
    input.push(...response.output);
    for (const call of calls) {
      const written = call.type === "function_call" ? JSON.parse(call.arguments).command : call.input;
      assert.match(written, call.type === "function_call" ? /^git add/ : /^\*\*\* Begin Patch\n.*\*\*\* End Patch\n$/s);
      const pieces = events.filter((event) => /(arguments|input)\.delta$/.test(event.type)).map((event) => event.delta);
      assert.equal(pieces.join(""), call.arguments ?? call.input);
      input.push({ type: `${call.type}_output`, call_id: call.call_id, output: "ok" });
    }
  }
  assert.deepEqual(kinds, [["custom_tool_call"], ["function_call"], []]);
  for (const usage of usages) {
    assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
    assert.ok(usage.input_tokens_details.cached_tokens + usage.input_tokens_details.cache_write_tokens < usage.input_tokens);
    assert.ok(usage.output_tokens_details.reasoning_tokens < usage.output_tokens);
  }
  assert.equal(new Set(usages.map((usage) => usage.input_tokens)).size, 3, "no two requests consume the same");
});

await step("responses: long thoughts, 2 MB of text, several calls, and no stream", async () => {
  const thinking = await client("thinking").responses.stream(question).finalResponse();
  assert.match(thinking.output[0].summary[0].text, /Weighing the task[^]*日本語/);
  const long = await client("longtext").responses.stream(question).finalResponse();
  assert.ok(long.output_text.length >= 2 << 20);
  const several = await client("fanout").responses.stream(question).finalResponse();
  assert.equal(several.output.filter((item) => item.type === "function_call").length, 2);
  const whole = await client("bash_ls").responses.create(question);
  assert.equal(whole.output_text, "Listing files.");
  assert.equal(whole.output.at(-1).name, "shell_command");
});

await step("responses: colours and wide characters arrive as they were sent", async () => {
  const { output_text } = await client("ansi").responses.stream(question).finalResponse();
  assert.equal(output_text, 'Printing colours \u001b[35mmagenta\u001b[0m ✓ 日本語 👩\u200d💻 and "quotes" \\ back\u2028slash.');
});

await step("responses: a failure is told inside the stream", async () => {
  for (const [scenario, code] of [["sse_error", "server_is_overloaded"], ["sse_ctx", "context_length_exceeded"]]) {
    const events = [];
    for await (const event of await client(scenario).responses.create({ ...question, stream: true })) events.push(event);
    assert.equal(events.at(-1).type, "response.failed");
    assert.equal(events.at(-1).response.error.code, code);
  }
});

await step("chat: text, thoughts and tools are streamed", async () => {
  const messages = [...chat.messages];
  const finishes = [];
  const prompts = [];
  for (let turn = 0; turn < 3; turn += 1) {
    const stream = client("happy").chat.completions.stream({ ...chat, messages, stream_options: { include_usage: true } });
    let thought = "";
    for await (const chunk of stream) thought += chunk.choices[0]?.delta.reasoning_content ?? "";
    const { choices: [{ message, finish_reason }], usage } = await stream.finalChatCompletion();
    finishes.push(finish_reason);
    prompts.push(usage.prompt_tokens);
    assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
    assert.ok(usage.prompt_tokens_details.cached_tokens > 0 && usage.completion_tokens_details.reasoning_tokens > 0);
    messages.push({ role: "assistant", content: message.content, tool_calls: message.tool_calls });
    for (const call of message.tool_calls ?? []) {
      assert.equal(thought, "Let me think about the task.");
      assert.match(JSON.parse(call.function.arguments).command, turn === 0 ? /^cat > hello.txt/ : /^git add/);
      messages.push({ role: "tool", tool_call_id: call.id, content: "ok" });
    }
  }
  assert.deepEqual(finishes, ["tool_calls", "tool_calls", "stop"]);
  assert.equal(new Set(prompts).size, 3, "no two requests consume the same");
});

await step("chat: usage is streamed to who asks for it, and is always in a whole answer", async () => {
  const chunks = [];
  for await (const chunk of await client("text").chat.completions.create({ ...chat, stream: true })) chunks.push(chunk);
  assert.ok(chunks.every((chunk) => chunk.usage === undefined && chunk.choices.length === 1));
  const whole = await client("bash_ls").chat.completions.create(chat);
  assert.equal(JSON.parse(whole.choices[0].message.tool_calls[0].function.arguments).command, "ls -la");
  assert.ok(whole.usage.total_tokens > 0);
});

await step("chat: a failure is told inside the stream", async () => {
  const asked = async () => {
    for await (const _ of await client("sse_ctx").chat.completions.create({ ...chat, stream: true }));
  };
  await assert.rejects(asked, (error) => error instanceof APIError && error.code === "context_length_exceeded");
});

const ways = {
  responses: (scenario) => client(scenario).responses.create({ ...question, stream: true }),
  chat: (scenario) => client(scenario).chat.completions.create({ ...chat, stream: true }),
};
for (const [name, ask] of Object.entries(ways)) {
  await step(`${name}: what is refused has its class, status, code and time`, async () => {
    for (const [scenario, kind, status, code, retryAfter] of [
      ["e401", AuthenticationError, 401, "invalid_api_key", null],
      ["e403", PermissionDeniedError, 403, "model_not_found", null],
      ["e400ctx", BadRequestError, 400, "context_length_exceeded", null],
      ["e429", RateLimitError, 429, "rate_limit_exceeded", "1"],
      ["e429bare", RateLimitError, 429, "rate_limit_exceeded", null],
      ["e429hdr", RateLimitError, 429, "rate_limit_exceeded", "3600"],
      ["limit", RateLimitError, 429, null, "3600"],
      ["equota", RateLimitError, 429, "insufficient_quota", null],
      ["e500", InternalServerError, 500, null, null],
      ["e503", InternalServerError, 503, "server_is_overloaded", null],
      ["e529", InternalServerError, 529, "server_is_overloaded", null],
      ["overload", InternalServerError, 503, "server_is_overloaded", null],
    ]) {
      const error = await ask(scenario).then(() => undefined, (error) => error);
      assert.ok(error instanceof kind, `${scenario}: ${error}`);
      assert.deepEqual([error.status, error.code, error.headers.get("retry-after")], [status, code, retryAfter], scenario);
      assert.ok(error.message.length > 10 && error.type, scenario);
    }
  });
  await step(`${name}: two overloads are got over`, async () => {
    const outcomes = [];
    for (let attempt = 0; attempt < 3; attempt += 1) {
      outcomes.push(await ask("flaky").then(() => 200, (error) => error.status));
    }
    assert.deepEqual(outcomes, name === "responses" ? [503, 503, 200] : [200, 200, 200], "they are counted by the base URL");
  });
  await step(`${name}: a broken connection breaks the stream`, async () => {
    for (const scenario of ["drop", "droptool"]) {
      let count = 0;
      const asked = async () => {
        for await (const _ of await ask(scenario)) count += 1;
      };
      await assert.rejects(asked, (error) => !(error instanceof APIError) || error instanceof APIConnectionError, scenario);
      assert.ok(count > 2, `${scenario}: something came before`);
    }
  });
}
