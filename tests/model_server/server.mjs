// A small OpenAI-compatible server over node-llama-cpp, for the tests alone.
//
// Usage: node server.mjs MODULES GGUF NAME [THREADS], where MODULES is the node_modules folder with node-llama-cpp.
// Prints one line, {"port": N}, when it listens on 127.0.0.1, and ends when its standard input does.
//
// What it answers is what the model says: one request after another, each from an empty context, greedy unless
// `temperature` says otherwise, so that the same request has the same answer. Spoken are GET /health, GET /v1/models and
// POST /v1/chat/completions with messages, max_tokens (or max_completion_tokens), temperature, top_p, seed, stop, stream,
// stream_options.include_usage, logprobs, top_logprobs, response_format, tools and tool_choice. A JSON schema (of
// response_format, or of a tool that tool_choice forces: "required" or a function by name) becomes a grammar, so the
// answer follows it; texts and lists without a limit get a short one, and limits of numbers are not kept (give an enum).
// With tool_choice "auto" the model answers in text.

import http from "node:http";
import path from "node:path";
import {pathToFileURL} from "node:url";

const [modules, gguf, modelName, threads = "1"] = process.argv.slice(2);
const {getLlama, LlamaGrammarEvaluationState, LlamaLogLevel} = await import(
    pathToFileURL(path.join(modules, "node-llama-cpp", "dist", "index.js"))
);

const CONTEXT_TOKENS = 2048;
const MAX_BODY_BYTES = 1024 * 1024;
const MAX_STRING = 60;
const MAX_ITEMS = 4;
const DEFAULT_SYSTEM = "You are a helpful assistant."; // with the one of its chat template it answers in French

const llama = await getLlama({
    gpu: false, build: "never", skipDownload: true, progressLogs: false, logLevel: LlamaLogLevel.error,
    maxThreads: Number(threads)
});
const model = await llama.loadModel({modelPath: gguf});
const context = await model.createContext({contextSize: CONTEXT_TOKENS, threads: Number(threads), sequences: 1});
const sequence = context.getSequence();

class Refused extends Error {
    constructor(status, code, message) {
        super(message);
        Object.assign(this, {status, code});
    }
}

function textOf(content) {
    if (typeof content === "string") return content;
    if (content == null) return "";
    if (!Array.isArray(content)) throw new Refused(400, "invalid_messages", "content is neither a text nor a list of parts");
    return content.map(part => {
        if (part.type !== "text") throw new Refused(400, "invalid_messages", `this model cannot read ${part.type}`);
        return part.text;
    }).join("");
}

function promptTokens(body, tools) {
    if (!Array.isArray(body.messages) || body.messages.length === 0)
        throw new Refused(400, "invalid_messages", "messages is empty");
    const turns = body.messages.map(message => {
        const calls = (message.tool_calls ?? []).map(({function: {name, arguments: args}}) => `${name}(${args})`);
        return [message.role === "developer" ? "system" : message.role, [textOf(message.content), ...calls].join("\n")];
    });
    if (turns[0][0] !== "system") turns.unshift(["system", DEFAULT_SYSTEM]);
    if (tools.length > 0) {
        const lines = tools.map(({name, description, parameters}) =>
            `${name}: ${description ?? ""} ${JSON.stringify(parameters?.properties ?? {})}`);
        turns[0] = ["system", `${turns[0][1]}\nAnswer with the arguments of a tool, as JSON.\n${lines.join("\n")}`];
    }
    const special = text => model.tokenize(text, true);
    const tokens = turns.flatMap(([role, text]) =>
        [...special("<|im_start|>"), ...model.tokenize(`${role}\n${text}`), ...special("<|im_end|>"), ...model.tokenize("\n")]);
    return [...tokens, ...special("<|im_start|>"), ...model.tokenize("assistant\n")];
}

// Short texts and lists, so that a small model comes to an end.
function bounded(schema) {
    if (schema === null || typeof schema !== "object" || Array.isArray(schema)) return schema ?? {};
    const {title, default: _, required, anyOf, ...kept} = schema;
    if (anyOf) kept.oneOf = anyOf;
    if (kept.oneOf) kept.oneOf = kept.oneOf.map(bounded);
    if (kept.type === "string" && !kept.enum && kept.const === undefined && !kept.format) kept.maxLength ??= MAX_STRING;
    if (kept.type === "array") kept.maxItems ??= Math.max(MAX_ITEMS, kept.minItems ?? 0);
    if (kept.items) kept.items = bounded(kept.items);
    for (const group of ["properties", "$defs"])
        if (kept[group])
            kept[group] = Object.fromEntries(Object.entries(kept[group]).map(([name, each]) => [name, bounded(each)]));
    return kept;
}

function forcedTools(body) {
    const tools = (body.tools ?? []).map(tool => tool.function);
    const choice = body.tool_choice ?? "auto";
    if (choice === "auto" || choice === "none") return [];
    const chosen = choice === "required" ? tools : tools.filter(({name}) => name === choice.function?.name);
    if (chosen.length === 0) throw new Refused(400, "invalid_tool_choice", "tool_choice names none of the tools");
    return chosen;
}

async function grammarOf(body, tools) {
    const arguments_ = tool => bounded(tool.parameters ?? {type: "object", properties: {}});
    if (tools.length === 1) return llama.createGrammarForJsonSchema(arguments_(tools[0]));
    if (tools.length > 1)
        return llama.createGrammarForJsonSchema({
            oneOf: tools.map(tool =>
                ({type: "object", properties: {name: {const: tool.name}, arguments: arguments_(tool)}}))
        });
    const format = body.response_format?.type ?? "text";
    if (format === "json_object") return llama.getGrammarFor("json");
    if (format === "json_schema") return llama.createGrammarForJsonSchema(bounded(body.response_format.json_schema.schema));
    return null;
}

function optionsOf(body, grammar) {
    const temperature = body.temperature ?? 0;
    const options = {temperature, topP: body.top_p ?? 1, topK: 0, minP: 0, seed: body.seed ?? 0};
    if (grammar) options.grammarEvaluationState = new LlamaGrammarEvaluationState({model, grammar});
    return options;
}

const textFrom = token => model.detokenize([token], true);

function logprobOf({token, confidence, probabilities}, numTop) {
    const entry = (each, probability) => {
        const text = textFrom(each);
        return {token: text, logprob: Math.log(Math.max(probability, 1e-45)), bytes: [...Buffer.from(text)]};
    };
    const top = [...(probabilities ?? new Map()).entries()].slice(0, numTop).map(([each, p]) => entry(each, p));
    return {...entry(token, confidence), top_logprobs: top};
}

// Yields {text, logprob} and at last {reason, numTokens}: text that may be the start of a stop is held back.
async function* generate(body, tokens, grammar, isGone) {
    // A grammar of node-llama-cpp goes on with line ends, of which so many are its own stop.
    const stops = [body.stop ?? [], grammar?.stopGenerationTriggers.map(String) ?? []].flat().filter(stop => stop !== "");
    const numMax = Math.min(body.max_completion_tokens ?? body.max_tokens ?? 256, CONTEXT_TOKENS - tokens.length);
    const numTop = body.top_logprobs ?? 0;
    const metadata = {confidence: Boolean(body.logprobs), probabilities: Boolean(body.logprobs) && numTop > 0};
    let text = "", numSent = 0, numTokens = 0, reason = "stop";
    const decoded = [];
    await sequence.clearHistory();
    for await (const item of sequence.evaluateWithMetadata(tokens, metadata, optionsOf(body, grammar))) {
        numTokens += 1;
        decoded.push(item.token);
        text = model.detokenize(decoded);
        const stop = stops.map(each => text.indexOf(each)).filter(place => place >= 0).sort((a, b) => a - b)[0];
        const end = stop ?? text.length - heldBack(text, stops);
        yield {text: text.slice(numSent, end), logprob: body.logprobs ? logprobOf(item, numTop) : null};
        numSent = Math.max(numSent, end);
        if (stop !== undefined || isGone()) return yield {text: "", reason, numTokens};
        if (numTokens >= numMax) { reason = "length"; break; }
    }
    yield {text: text.slice(numSent), reason, numTokens};
}

function heldBack(text, stops) {
    let most = text.endsWith("\uFFFD") ? 1 : 0; // a character of which not all bytes are there
    for (const stop of stops)
        for (let size = Math.min(stop.length - 1, text.length); size > most; size--)
            if (text.endsWith(stop.slice(0, size))) most = size;
    return most;
}

function toolCalls(text, tools, id) {
    let [{name}, args] = [tools[0], text];
    if (tools.length > 1) {
        const parsed = JSON.parse(text); // cut by max_tokens, it is no call
        [name, args] = [parsed.name, JSON.stringify(parsed.arguments)];
    }
    return [{id: `call_${id}`, type: "function", function: {name, arguments: args}}];
}

let numRequests = 0;
let queue = Promise.resolve();

async function chat(request, response, body) {
    if (body.model !== modelName)
        throw new Refused(404, "model_not_found", `no model ${JSON.stringify(body.model)}; there is ${modelName}`);
    const tools = forcedTools(body);
    const tokens = promptTokens(body, tools);
    if (tokens.length >= CONTEXT_TOKENS)
        throw new Refused(400, "context_length_exceeded", `${tokens.length} tokens are more than ${CONTEXT_TOKENS}`);
    let grammar;
    try {
        grammar = await grammarOf(body, tools);
    } catch (error) {
        throw new Refused(400, "invalid_schema", `the schema cannot become a grammar: ${error.message}`);
    }
    const id = ++numRequests;
    const head = {id: `chatcmpl-${id}`, created: Math.floor(Date.now() / 1000), model: modelName};
    const usage = numTokens =>
        ({prompt_tokens: tokens.length, completion_tokens: numTokens, total_tokens: tokens.length + numTokens});
    const parts = generate(body, tokens, grammar, () => response.destroyed);
    if (body.stream) await sendStream(response, body, head, usage, parts, tools, id);
    else await sendWhole(response, head, usage, parts, tools, id);
}

async function sendWhole(response, head, usage, parts, tools, id) {
    let text = "", last = null;
    const logprobs = [];
    for await (const part of parts) {
        text += part.text;
        if (part.logprob) logprobs.push(part.logprob);
        last = part;
    }
    const isCall = tools.length > 0 && last.reason === "stop";
    const message = {role: "assistant", content: isCall ? null : text};
    if (isCall) message.tool_calls = toolCalls(text, tools, id);
    const choice = {
        index: 0, message, finish_reason: isCall ? "tool_calls" : last.reason,
        logprobs: logprobs.length > 0 ? {content: logprobs} : null
    };
    sendJson(response, 200, {...head, object: "chat.completion", choices: [choice], usage: usage(last.numTokens)});
}

async function sendStream(response, body, head, usage, parts, tools, id) {
    response.writeHead(200, {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"});
    const send = fields => response.write(
        `data: ${JSON.stringify({...head, object: "chat.completion.chunk", ...fields})}\n\n`);
    const sendDelta = (delta, finish_reason = null, logprobs = null) =>
        send({choices: [{index: 0, delta, finish_reason, logprobs}]});
    sendDelta({role: "assistant", content: tools.length > 0 ? null : ""});
    let text = "", last = null;
    for await (const part of parts) {
        text += part.text;
        last = part;
        if (tools.length === 0 && (part.text !== "" || part.logprob))
            sendDelta({content: part.text}, null, part.logprob && {content: [part.logprob]});
    }
    const isCall = tools.length > 0 && last.reason === "stop";
    if (isCall) sendDelta({tool_calls: toolCalls(text, tools, id).map((call, index) => ({index, ...call}))});
    else if (tools.length > 0) sendDelta({content: text});
    sendDelta({}, isCall ? "tool_calls" : last.reason);
    if (body.stream_options?.include_usage) send({choices: [], usage: usage(last.numTokens)});
    response.end("data: [DONE]\n\n");
}

function sendJson(response, status, value) {
    response.writeHead(status, {"Content-Type": "application/json"});
    response.end(JSON.stringify(value));
}

async function bodyOf(request) {
    const chunks = [];
    let size = 0;
    for await (const chunk of request) {
        size += chunk.length;
        if (size > MAX_BODY_BYTES) throw new Refused(413, "too_large", `more than ${MAX_BODY_BYTES} bytes`);
        chunks.push(chunk);
    }
    try {
        return JSON.parse(Buffer.concat(chunks).toString());
    } catch (error) {
        throw new Refused(400, "invalid_json", error.message);
    }
}

async function answer(request, response) {
    const route = `${request.method} ${request.url}`;
    if (route === "GET /health") return sendJson(response, 200, {status: "ok"});
    if (route === "GET /v1/models")
        return sendJson(response, 200, {object: "list", data: [{id: modelName, object: "model", created: 0, owned_by: "local"}]});
    if (route !== "POST /v1/chat/completions") throw new Refused(404, "not_found", `no ${route}`);
    const body = await bodyOf(request);
    const turn = queue.then(() => chat(request, response, body));
    queue = turn.catch(() => undefined); // the failure is told to the one who asked, below
    await turn;
}

const server = http.createServer((request, response) => {
    answer(request, response).catch(error => {
        const isRefused = error instanceof Refused;
        if (!isRefused) process.stderr.write(`${error.stack}\n`);
        if (response.headersSent) return response.destroy();
        const type = isRefused ? "invalid_request_error" : "server_error";
        sendJson(response, error.status ?? 500, {error: {message: error.message, type, param: null, code: error.code ?? null}});
    });
});
server.listen(0, "127.0.0.1", () => process.stdout.write(`${JSON.stringify({port: server.address().port})}\n`));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
