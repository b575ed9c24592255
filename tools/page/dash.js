// dash.js: what the server does right now, from /metrics and /kv_blocks: read once a second while it is looked at, drawn as
// SVG.
import {Refusal, call} from "./api.js";
import {make} from "./text.js";

const SPAN = 120;   // seconds that are drawn
const RECENT = 60;  // seconds of which percentiles are told

// --- Prometheus's text ---

// Each name's rows: {labels, value}.
export function parse(text) {
    const out = new Map();
    for (const line of text.split("\n")) {
        const m = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? +(\S+)/.exec(line);
        if (!m) continue;
        const labels = {};
        for (const [, name, value] of (m[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
        if (!out.has(m[1])) out.set(m[1], []);
        out.get(m[1]).push({labels, value: m[3] === "+Inf" ? Infinity : Number(m[3])});
    }
    return out;
}

const sum = (m, name) => (m.get(name) ?? []).reduce((s, row) => s + row.value, 0);
// [[upper end, how many stand below]]
const buckets = (m, name) => (m.get(`${name}_bucket`) ?? []).map(r => [r.labels.le === "+Inf" ? Infinity : Number(r.labels.le), r.value]);
const less = (now, then) => now.map(([end, n], i) => [end, n - (then[i]?.[1] ?? 0)]);

// As histogram_quantile has it; {value, bound}: bound is "<" or ">" where only a limit is known.
export function quantile(rows, q) {
    const count = rows.at(-1)?.[1] ?? 0, at = rows.findIndex(([, n]) => n >= q * count);
    if (!count) return null;
    if (at === 0) return {value: rows[0][0], bound: "<"};
    if (rows[at][0] === Infinity) return {value: rows[at - 1][0], bound: ">"};
    const [low, below] = rows[at - 1], [high, n] = rows[at];
    return {value: low + (high - low) * (q * count - below) / (n - below), bound: ""};
}

// --- numbers in words ---

const digits = most => new Intl.NumberFormat("en", {maximumFractionDigits: most});
const number = v => (v === null || v === undefined || Number.isNaN(v) ? "\u2013" : digits(Math.abs(v) < 10 ? 1 : 0).format(v));
const percent = v => (v === null ? "\u2013" : `${digits(v > 0 && v < 0.1 ? 1 : 0).format(v * 100)} %`);
const time = s => (s < 1 ? `${digits(s < 0.01 ? 1 : 0).format(s * 1000)} ms` : `${digits(s < 10 ? 1 : 0).format(s)} s`);
const bounded = q => (q ? `${q.bound}${q.bound && " "}${time(q.value)}` : "\u2013");

// --- drawings ---

function svg(tag, attributes, ...inside) {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
    e.append(...inside);
    return e;
}

function round(v) { // up, to 1, 2 or 5 of its power of ten
    const power = 10 ** Math.floor(Math.log10(Math.max(v, 1)));
    return [1, 2, 5, 10].find(k => k * power >= v) * power;
}

// Lines over the last two minutes. `series`: [{word, kind, of}], `of` a sample's number, null where there is none.
function chart(title, series, unit) {
    const plot = svg("svg", {viewBox: `0 0 ${SPAN} 100`, preserveAspectRatio: "none", role: "img"});
    const top = make("span", {className: "top"}), words = series.map(s => make("b", {}));
    const legend = make("div", {className: "legend"}, ...series.map((s, i) => make("span", {className: s.kind}, make("i"), `${s.word} `, words[i])));
    const box = make("div", {className: "plot"}, plot, top, make("span", {className: "low"}, "0"));
    const scale = make("div", {className: "scale"}, make("span", {}, "2 minutes ago"), make("span", {}, "now"));
    const card = make("section", {className: "card wide"}, make("h2", {}, title), legend, box, scale);
    let rows = [], at = null;
    const tell = () => {
        const i = at ?? rows.length - 1;
        words.forEach((w, k) => { w.textContent = rows[i] ? `${number(rows[i].values[k])}${unit}` : "\u2013"; });
        plot.querySelector(".at")?.remove();
        if (at !== null && rows[at]) plot.append(svg("path", {class: "at", d: `M${rows[at].x} 0V100`}));
    };
    const point = e => {
        const r = box.getBoundingClientRect(), x = (e.clientX - r.left) / r.width * SPAN;
        at = rows.length ? rows.reduce((best, row, i) => (Math.abs(row.x - x) < Math.abs(rows[best].x - x) ? i : best), 0) : null;
        tell();
    };
    box.addEventListener("pointermove", point);
    box.addEventListener("pointerdown", point);
    box.addEventListener("pointerleave", () => { at = null; tell(); });
    const draw = samples => {
        const end = samples.at(-1).t;
        rows = samples.map((s, i) => ({x: SPAN - (end - s.t), values: series.map(one => one.of(s, samples[i - 1]))}));
        const most = round(Math.max(1, ...rows.flatMap(r => r.values).filter(Number.isFinite)));
        top.textContent = number(most);
        plot.replaceChildren(...[50, 100].map(y => svg("path", {class: "grid", d: `M0 ${100 - y}H${SPAN}`})),
                             ...series.flatMap((one, k) => lines(one.kind, rows.map(r => [r.x, r.values[k]]), most)));
        plot.setAttribute("aria-label", `${title}: ${series.map((s, k) => `${s.word} ${number(rows.at(-1).values[k])}${unit}`).join(", ")}`);
        tell();
    };
    return {card, draw};
}

// A line and what is below it, broken where nothing is known.
function lines(kind, points, most) {
    const out = [];
    let run = [];
    for (const [x, v] of [...points, [0, null]]) {
        if (v !== null && v !== undefined) { run.push([x, 100 - v / most * 96]); continue; }
        if (run.length > 1) {
            const d = `M${run.map(p => p.map(n => n.toFixed(2)).join(" ")).join("L")}`;
            out.push(svg("path", {class: `area ${kind}`, d: `${d}L${run.at(-1)[0].toFixed(2)} 100L${run[0][0].toFixed(2)} 100Z`}),
                     svg("path", {class: `line ${kind}`, d}));
        }
        run = [];
    }
    return out;
}

// Percentiles of a histogram, and its bars.
function latency(title, name) {
    const cells = ["p50", "p90", "p99"].map(word => [word, make("dd", {})]);
    const bars = make("div", {className: "bars"}), span = make("p", {className: "hint"});
    const card = make("section", {className: "card"}, make("h2", {}, title),
                      make("dl", {}, ...cells.map(([word, dd]) => make("div", {}, make("dt", {}, word), dd))), bars, span);
    bars.setAttribute("role", "img");
    const draw = samples => {
        const now = buckets(samples.at(-1).m, name), recent = samples.find(s => samples.at(-1).t - s.t <= RECENT);
        let rows = less(now, buckets(recent.m, name)), said = "the last minute";
        if (!rows.at(-1)?.[1]) [rows, said] = [now, "all since the start"];
        const count = rows.at(-1)?.[1] ?? 0, each = rows.map(([end, n], i) => [end, n - (rows[i - 1]?.[1] ?? 0)]);
        const most = Math.max(1, ...each.map(r => r[1]));
        cells.forEach(([word, dd]) => { dd.textContent = bounded(quantile(rows, Number(word.slice(1)) / 100)); });
        bars.replaceChildren(...each.map(([end, n], i) => {
            const bar = make("i", {title: `${end === Infinity ? `over ${time(each[i - 1][0])}` : `up to ${time(end)}`}: ${digits(0).format(n)}`});
            bar.style.height = `${n ? Math.max(4, n / most * 100) : 0}%`;
            return make("span", {}, bar);
        }));
        bars.setAttribute("aria-label", `${title}: ${cells.map(([word, dd]) => `${word} ${dd.textContent}`).join(", ")}`);
        span.textContent = count ? `${digits(0).format(count)} in ${said}` : "nothing yet";
    };
    return {card, draw};
}

// The KV cache, block by block in the order of their numbers, as /kv_blocks tells it: a square each, or as many blocks to
// a square as make them fit, of which the busiest gives the colour.
const USES = [["held", "in use by one"], ["shared", "in use by several"], ["cached", "cached"], ["free", "free"]];
const BY_DIGIT = {0: "free", 1: "cached", 2: "held", 3: "shared"};

function map() {
    const grid = svg("svg", {role: "img", class: "map"}), size = make("p", {className: "hint"}), words = USES.map(() => make("b", {}));
    const legend = make("div", {className: "legend"}, ...USES.map(([kind, word], i) => make("span", {className: kind}, make("i"), `${word} `, words[i])));
    const card = make("section", {className: "card wide"}, make("h2", {}, "KV cache"), legend, grid, size);
    let now = null, made = "", at = -1;
    const tell = () => {
        const each = now.blocks_per_cell, from = at * each, to = Math.min(from + each, now.blocks) - 1, count = digits(0).format;
        const use = at < 0 ? "" : USES.find(([kind]) => kind === BY_DIGIT[now.cells[at]])[1];
        size.textContent = at < 0 ? `${count(now.blocks)} blocks of ${now.block_size} tokens${each > 1 ? `, ${each} to a square, which shows its busiest` : ""}`
            : from === to ? `Block ${count(from)}: ${use}` : `Blocks ${count(from)} to ${count(to)}: ${use}${use === "free" ? "" : ", one at least"}`;
    };
    const point = e => {
        at = e.target === grid ? -1 : [...grid.children].indexOf(e.target);
        if (now) tell();
    };
    grid.addEventListener("pointermove", point);
    grid.addEventListener("pointerdown", point);
    grid.addEventListener("pointerleave", () => { at = -1; if (now) tell(); });
    const draw = samples => {
        now = samples.at(-1).blocks;
        const count = now.cells.length, wide = card.clientWidth < 520 ? 32 : 64;
        if (at >= count) at = -1;
        if (made !== `${count} ${wide}`) {
            grid.setAttribute("viewBox", `0 0 ${wide * 10} ${Math.ceil(count / wide) * 10}`);
            grid.replaceChildren(...Array.from({length: count}, (_, i) =>
                svg("rect", {x: i % wide * 10 + 1, y: Math.floor(i / wide) * 10 + 1, width: 8, height: 8, rx: 2})));
            made = `${count} ${wide}`;
        }
        [...grid.children].forEach((cell, i) => cell.setAttribute("class", BY_DIGIT[now.cells[i]]));
        USES.forEach(([kind], i) => { words[i].textContent = digits(0).format(now[kind]); });
        tell();
        grid.setAttribute("aria-label", `KV cache: of ${digits(0).format(now.blocks)} blocks ${USES.map(([kind, word]) => `${digits(0).format(now[kind])} ${word}`).join(", ")}`);
    };
    return {card, draw};
}

function tiles(rows) {
    const cells = rows.map(([word]) => [make("dt", {}, word), make("dd", {})]);
    const card = make("dl", {className: "tiles"}, ...cells.map(pair => make("div", {className: "card"}, ...pair)));
    const draw = samples => rows.forEach(([, of], i) => { cells[i][1].textContent = of(samples.at(-1), samples.at(-2), samples); });
    return {card, draw};
}

// --- what is shown ---

// How much a counter grew in a second. Nothing is known across a pause, or where the server began anew.
function rate(name) {
    return (now, then) => {
        if (!then || now.t - then.t > 5) return null;
        const grown = sum(now.m, name) - sum(then.m, name);
        return grown < 0 ? null : grown / (now.t - then.t);
    };
}
const gauge = name => s => sum(s.m, name);
// Of what was looked up in the last two minutes, what was found; null: nothing was.
function hits(now, then) {
    const asked = sum(now.m, "vllm:prefix_cache_queries_total") - (then ? sum(then.m, "vllm:prefix_cache_queries_total") : 0);
    return asked > 0 ? (sum(now.m, "vllm:prefix_cache_hits_total") - (then ? sum(then.m, "vllm:prefix_cache_hits_total") : 0)) / asked : null;
}

const out = rate("vllm:generation_tokens_total"), inward = rate("vllm:prompt_tokens_total");
const parts = [
    tiles([
        ["Tokens out per second", (now, then) => number(out(now, then))],
        ["Prompt tokens per second", (now, then) => number(inward(now, then))],
        ["Running", now => number(sum(now.m, "vllm:num_requests_running"))],
        ["Waiting", now => number(sum(now.m, "vllm:num_requests_waiting"))],
        ["KV cache in use", now => percent(sum(now.m, "vllm:kv_cache_usage_perc"))],
        ["Prompt tokens found in the cache", (now, then, all) => percent(hits(now, all.length > 1 ? all[0] : null) ?? hits(now, null))],
        ["Answers since the start", now => number(sum(now.m, "vllm:request_success_total"))],
        ["Put back for want of memory", now => number(sum(now.m, "vllm:num_preemptions_total"))],
    ]),
    chart("Tokens per second", [{word: "out", kind: "a", of: out}, {word: "of prompts", kind: "b", of: inward}], ""),
    chart("Batch", [{word: "running", kind: "a", of: gauge("vllm:num_requests_running")},
                    {word: "waiting", kind: "b", of: gauge("vllm:num_requests_waiting")}], ""),
    latency("Time to the first token", "vllm:time_to_first_token_seconds"),
    latency("From token to token", "vllm:inter_token_latency_seconds"),
    latency("Whole requests", "vllm:e2e_request_latency_seconds"),
    map(),
];
const wrong = make("p", {className: "notice bad", hidden: true});
wrong.setAttribute("role", "status");
document.getElementById("dash").append(wrong, ...parts.map(p => p.card));

// --- the clock ---

const samples = [];
let watched = false, timer = 0, asking = null;

async function poll() {
    timer = 0;
    if (asking || !watched || document.visibilityState !== "visible") return;
    let go = true;
    asking = new AbortController();
    try {
        const m = parse(await (await call("metrics", {signal: asking.signal})).text()), t = performance.now() / 1000;
        const blocks = await (await call("kv_blocks", {signal: asking.signal})).json();
        samples.push({t, m, blocks});
        while (t - samples[0].t > SPAN) samples.shift();
        for (const p of parts) p.draw(samples);
        wrong.hidden = true;
    } catch (e) {
        if (!asking.signal.aborted) {
            wrong.textContent = e instanceof Refusal ? e.message : `${e.name}: ${e.message}`;
            wrong.hidden = false;
            go = e.status !== 401; // who has no key is not asked for one each second
        }
    }
    asking = null;
    if (watched && go) timer ||= setTimeout(poll, 1000);
}

// Whether the dashboard is looked at.
export function watch(on) {
    watched = on;
    if (!on) {
        asking?.abort();
        clearTimeout(timer);
        timer = 0;
    } else if (!timer) poll();
}
document.addEventListener("visibilitychange", () => watch(watched));
