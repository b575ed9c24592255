// page.js: the page's views, a conversation and a text, and what is asked for them. What is typed here stays in this
// browser but for what is sent to the server: settings until they are emptied, the conversation until the tab closes.
import {Refusal, call, events} from "./api.js";
import {make, put, show} from "./text.js";
import {watch} from "./dash.js";

const $ = id => document.getElementById(id);
const keep = (store, name, value) => { try { store.setItem(name, JSON.stringify(value)); } catch { /* it is full, or closed */ } };
const kept = (store, name, none) => { try { return JSON.parse(store.getItem(name)) ?? none; } catch { return none; } };
const whole = new Intl.NumberFormat("en"), plural = (n, what) => `${whole.format(n)} ${what}${n === 1 ? "" : "s"}`;
const say = text => { $("said").textContent = text; };

let model = null;  // its name, once the server has said it
let running = null; // the AbortController of what is being written

// --- settings ---

const PIECE = 200; // tokens that a text grows by where nothing else is said
// Fields of a request. What is empty is not sent.
const fields = [
    {name: "temperature", label: "Temperature", min: 0, max: 2, step: "any", note: "0 always takes the likeliest"},
    {name: "top_p", label: "Top p", min: 0, max: 1, step: "any", note: "share of what is likely"},
    {name: "top_k", label: "Top k", min: 0, max: 2147483647, step: 1, note: "so many tokens; 0: all"},
    {name: "min_p", label: "Min p", min: 0, max: 1, step: "any", note: "part of the likeliest's share"},
    {name: "max_tokens", label: "Most tokens", min: 1, max: 10000000, step: 1, none: "what fits", note: `of an answer; of a text ${PIECE} unless said`},
    {name: "seed", label: "Seed", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, none: "any", note: "the same draws again"},
];
const settings = kept(localStorage, "lq.settings", {});

function more() {
    if (!settings.more?.trim()) return {};
    const value = JSON.parse(settings.more);
    if (!value || typeof value !== "object" || Array.isArray(value)) throw new SyntaxError("expected an object, {...}");
    return value;
}

function check() {
    $("morewrong").textContent = "";
    try { more(); } catch (e) { $("morewrong").textContent = `No JSON: ${e.message}`; }
}

function setting(name, input) {
    input.value = settings[name] ?? "";
    input.addEventListener("input", () => {
        settings[name] = input.value;
        if (name === "more") check();
        keep(localStorage, "lq.settings", settings);
    });
}

for (const f of fields) {
    const input = make("input", {id: `set-${f.name}`, type: "number", inputMode: "decimal", min: f.min, max: f.max, step: f.step, placeholder: f.none ?? "model's"});
    const note = make("span", {id: `note-${f.name}`, className: "hint"}, f.note);
    input.setAttribute("aria-describedby", note.id);
    $("fields").append(make("div", {}, make("label", {htmlFor: input.id}, f.label), input, note));
    setting(f.name, input);
}
setting("system", $("system"));
setting("more", $("more"));
check();
$("reset").addEventListener("click", () => {
    for (const input of $("settings").querySelectorAll("input, textarea")) {
        input.value = "";
        input.dispatchEvent(new Event("input"));
    }
});

function open(on) {
    $("settings").hidden = !on;
    $("tune").setAttribute("aria-expanded", String(on));
    keep(localStorage, "lq.open", on);
    (on && matchMedia("(max-width: 60rem)").matches ? $("shut") : $("tune")).focus();
}
$("tune").addEventListener("click", () => open($("settings").hidden));
$("shut").addEventListener("click", () => open(false));

// What a request says beside its prompt. Throws a Refusal with what is wrong in words.
function asked() {
    const body = {stream: true, stream_options: {include_usage: true}};
    for (const f of fields) {
        const input = $(`set-${f.name}`);
        if (!input.validity.valid) throw new Refusal(`${f.label}: ${input.validationMessage}`);
        if (input.value !== "") body[f.name] = Number(input.value);
    }
    try { Object.assign(body, more()); } catch (e) { throw new Refusal(`Other fields: ${e.message}`); }
    return body;
}

// --- an answer ---

function busy(on) {
    running = on;
    for (const [id, word] of [["send", "Send"], ["go", "Go on"]]) {
        $(id).textContent = on ? "Stop" : word;
        $(id).classList.toggle("stop", Boolean(on));
    }
    $("log").setAttribute("aria-busy", String(Boolean(on)));
    $("page").readOnly = Boolean(on);
    tools();
}

const stop = () => running?.abort();

// Asks, hands `on` the text as it grows, and returns what there is to say of it: {text, note, error}.
async function write(path, ask, piece, on) {
    const control = new AbortController(), began = performance.now();
    let text = "", first = 0, usage = null, finish = null, error = null, drawn = 0;
    const draw = () => { drawn = 0; on(text); };
    busy(control);
    say("The model is writing.");
    try {
        model ??= (await (await call("v1/models", {signal: control.signal})).json()).data[0].id;
        const r = await call(path, {body: {model, ...ask, ...asked()}, signal: control.signal});
        for await (const event of events(r)) {
            usage = event.usage ?? usage;
            const choice = event.choices?.[0], more = choice && piece(choice);
            finish = choice?.finish_reason ?? finish;
            if (!more) continue;
            first ||= performance.now();
            text += more;
            drawn ||= requestAnimationFrame(draw);
        }
    } catch (e) {
        if (control.signal.aborted) finish = "stopped";
        else error = e;
    }
    cancelAnimationFrame(drawn);
    on(text);
    busy(null);
    const note = told(usage?.completion_tokens, first, began, finish);
    say(error ? error.message : `Done. ${note}`);
    return {text, note, error};
}

function told(tokens, first, began, finish) {
    const seconds = (performance.now() - first) / 1000, out = [];
    if (tokens) out.push(plural(tokens, "token"));
    if (tokens > 1 && first && seconds > 0) out.push(`${whole.format(Math.round((tokens - 1) / seconds))} per second`);
    if (first) out.push(`first after ${whole.format(Math.round(first - began))} ms`);
    if (finish === "length") out.push("ended by the limit of tokens");
    if (finish === "stopped") out.push("stopped");
    return out.join(" \u00b7 ");
}

const unseen = e => (e instanceof Refusal ? e.message : `${e.name}: ${e.message}`);

// --- the conversation ---

const messages = kept(sessionStorage, "lq.messages", []); // [{role, content, note}]

const near = () => $("scroll").scrollHeight - $("scroll").scrollTop - $("scroll").clientHeight < 80;
const down = () => { $("scroll").scrollTop = $("scroll").scrollHeight; };

function button(word, what, run) {
    const b = make("button", {type: "button", className: "plain", textContent: word});
    b.setAttribute("aria-label", what);
    b.addEventListener("click", () => run(b));
    return b;
}

function card(m, i) {
    const body = make("div", {className: "said"}), foot = make("footer");
    const out = make("article", {className: m.role}, make("h2", {className: "unseen"}, m.role === "user" ? "You" : "The model"), body, foot);
    if (m.role === "user") body.textContent = m.content;
    else show(body, m.content);
    foot.append(button("Copy", "Copy this message", b => put(m.content, b)));
    if (m.role === "user") foot.append(button("Edit", "Edit this message and go on from there", () => edit(i)));
    if (m.role === "user") foot.append(Object.assign(button("Send again", "Ask for an answer", again), {className: "plain retry"})); // shown where none follows
    else if (i === messages.length - 1) foot.append(button("Regenerate", "Write this answer again", again));
    if (m.note) foot.append(make("span", {className: "hint"}, m.note));
    return out;
}

function failure(error) {
    const out = make("article", {className: "failure"}, make("p", {}, unseen(error)), button("Try again", "Ask once more", again));
    out.setAttribute("role", "alert");
    return out;
}

function draw(last) {
    const empty = make("div", {id: "empty"}, make("p", {}, model ? `Talk to ${model}.` : "Talk to the model."),
                       make("p", {className: "hint"}, "What you write is sent to this server and to no other."));
    $("log").replaceChildren(...(messages.length ? messages.map(card) : [empty]), ...(last ? [last] : []));
    $("fresh").disabled = !messages.length;
    keep(sessionStorage, "lq.messages", messages);
}

async function answer() {
    const m = {role: "assistant", content: "", note: ""}, live = card(m, -1), body = live.querySelector(".said");
    const history = messages.map(({role, content}) => ({role, content})), system = $("system").value.trim();
    if (system) history.unshift({role: "system", content: system});
    draw(live);
    live.classList.add("live");
    live.querySelector("footer").remove();
    down();
    const got = await write("v1/chat/completions", {messages: history}, c => c.delta?.content, text => {
        const follow = near();
        show(body, text);
        if (follow) down();
    });
    if (got.error?.code === "no_chat_template") return goon(messages.pop().content);
    if (got.text || !got.error) messages.push({...m, content: got.text, note: got.note});
    const follow = near();
    draw(got.error ? failure(got.error) : null);
    if (follow) down();
}

function send() {
    const content = $("message").value;
    if (running || !content.trim()) return;
    messages.push({role: "user", content});
    $("message").value = "";
    grow();
    answer();
}

function again() {
    if (running) return;
    if (messages.at(-1)?.role === "assistant") messages.pop();
    if (messages.length) answer();
    $("message").focus();
}

function edit(i) {
    if (running) return;
    $("message").value = messages[i].content;
    messages.length = i;
    draw();
    grow();
    $("message").focus();
}

function grow() {
    const area = $("message");
    area.style.height = "auto";
    area.style.height = `${area.scrollHeight + 2}px`;
}

$("message").addEventListener("input", grow);
$("message").addEventListener("keydown", e => {
    if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    send();
});
$("ask").addEventListener("submit", e => { e.preventDefault(); if (running) stop(); else send(); });
$("fresh").addEventListener("click", () => { stop(); messages.length = 0; draw(); $("message").focus(); });

// --- a text ---

const page = $("page"), written = []; // written: what the text was before each piece
page.value = kept(sessionStorage, "lq.page", "");

function tools() {
    $("undo").disabled = $("again").disabled = Boolean(running) || !written.length;
}

async function extend() {
    const before = page.value;
    if (running || !before) return page.focus();
    $("wrong").hidden = true;
    written.push(before);
    const got = await write("v1/completions", {prompt: before, max_tokens: PIECE}, c => c.text, text => {
        page.value = before + text;
        page.scrollTop = page.scrollHeight;
    });
    if (!got.text) written.pop();
    tools();
    if (got.note) $("wrote").textContent = got.note;
    $("wrong").hidden = !got.error;
    if (got.error) $("wrong").textContent = unseen(got.error);
    keep(sessionStorage, "lq.page", page.value);
}

const undo = () => { page.value = written.pop(); keep(sessionStorage, "lq.page", page.value); tools(); };

// A model that can't talk goes on with what it was told.
function goon(text) {
    draw();
    page.value = text;
    $("why").hidden = false;
    location.hash = "#text";
    return extend();
}

page.addEventListener("input", () => { written.length = 0; tools(); keep(sessionStorage, "lq.page", page.value); });
page.addEventListener("keydown", e => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) { e.preventDefault(); extend(); } });
$("write").addEventListener("submit", e => { e.preventDefault(); if (running) stop(); else extend(); });
$("undo").addEventListener("click", undo);
$("again").addEventListener("click", () => { undo(); extend(); });

// --- the page ---

const views = ["chat", "text", "server"];

function turn() {
    const at = views.includes(location.hash.slice(1)) ? location.hash.slice(1) : "chat";
    for (const view of views) $(view).hidden = view !== at;
    for (const a of document.querySelectorAll("nav a"))
        if (a.hash === `#${at}`) a.setAttribute("aria-current", "page");
        else a.removeAttribute("aria-current");
    watch(at === "server");
    if (at === "chat") { grow(); down(); }
    if (!matchMedia("(pointer: coarse)").matches && !$("door").open) ({chat: $("message"), text: page})[at]?.focus();
}

const themes = {system: "Theme: system", light: "Theme: light", dark: "Theme: dark"};

function theme(next) {
    const root = document.documentElement, order = Object.keys(themes), now = root.dataset.theme ?? "system";
    const then = next ? order[(order.indexOf(now) + 1) % order.length] : now;
    if (then === "system") delete root.dataset.theme;
    else root.dataset.theme = then;
    try { localStorage.setItem("lq.theme", then); } catch { /* until the page is left, then */ }
    $("theme").textContent = themes[then];
}

async function meet() {
    try {
        model = (await (await call("v1/models")).json()).data[0].id;
        $("model").textContent = model;
        document.title = `${model} \u00b7 lq`;
        if (!messages.length && !running) draw();
    } catch (e) {
        $("model").textContent = e.status === 401 ? "no key" : "no answer";
    }
}

addEventListener("keydown", e => { if (e.key === "Escape" && running) { e.preventDefault(); stop(); } });
addEventListener("hashchange", turn);
$("theme").addEventListener("click", () => theme(true));
theme(false);
if (kept(localStorage, "lq.open", false) && !matchMedia("(max-width: 60rem)").matches) open(true);
busy(null);
draw();
turn();
meet();
