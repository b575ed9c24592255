// text.js: what a model wrote, as DOM nodes: the part of Markdown that models write. Nothing is ever read as HTML: each
// character of the text ends in a text node, and a link leads to http or https alone.

const LONG = 20000; // characters of a paragraph; what is longer is shown as it is
const DEEP = 8;     // of what stands in something else

export function make(tag, props = {}, ...inside) {
    const e = Object.assign(document.createElement(tag), props);
    e.append(...inside);
    return e;
}

// --- within a line ---

function link(href, ...inside) {
    let url = null;
    try { url = new URL(href); } catch { /* not one that stands for itself */ }
    if (!url || !/^https?:$/.test(url.protocol)) return make("span", {}, ...inside);
    return make("a", {href: url.href, target: "_blank", rel: "noopener noreferrer nofollow"}, ...inside);
}

// A URL in the text ends before the sentence does.
function bare(m) {
    const end = m[1].search(/[.,;:!?)\]]*$/), url = m[1].slice(0, end);
    return [link(url, url), m[0].startsWith("<") && m[0].endsWith(">") ? "" : m[1].slice(end)];
}

const wrap = tag => (m, deep) => [make(tag, {}, inline(m[1], deep))];
// What may begin at a place, and what it becomes. Lengths are bounded, so that no text takes long.
const spans = [
    [/\\([!-/:-@[-`{-~])/y, m => [m[1]]],
    [/(`+)(?!`)([^]{0,2000}?[^`])\1(?!`)/y, m => [make("code", {}, m[2].replace(/^ (.*\S.*) $/s, "$1"))]],
    [/!?\[([^[\]\n]{1,500})\]\(<?([^\s()<>]{1,2000}(?:\([^\s()<>]{0,200}\)[^\s()<>]{0,200})?)>?(?: +"[^"\n]{0,500}")?\)/y,
     (m, deep) => [link(m[2], inline(m[1], deep))]],
    [/<?(https?:\/\/[^\s<>"`*]{1,2000})>?/y, bare],
    [/\*\*(?=\S)([^]{0,2000}?\S)\*\*(?!\*)/y, wrap("strong")],
    [/(?<!\w)__(?=\S)([^]{0,2000}?\S)__(?!\w)/y, wrap("strong")],
    [/\*(?=[^\s*])([^]{0,2000}?[^\s])\*(?!\*)/y, wrap("em")],
    [/(?<!\w)_(?=[^\s_])([^]{0,2000}?[^\s_])_(?!\w)/y, wrap("em")],
    [/~~(?=\S)([^]{0,2000}?\S)~~/y, wrap("del")],
    [/ *\n/y, () => [make("br")]],
];

function inline(text, deep = 0) {
    const out = document.createDocumentFragment(), next = /[\\`![<*_~\n]| +\n|https?:/g;
    if (text.length > LONG || deep > DEEP) return out.append(text), out;
    let shown = 0, found;
    while ((found = next.exec(text))) {
        for (const [rule, become] of spans) {
            rule.lastIndex = found.index;
            const m = rule.exec(text), end = rule.lastIndex;
            if (!m) continue;
            out.append(text.slice(shown, found.index), ...become(m, deep + 1));
            shown = next.lastIndex = end;
            break;
        }
    }
    out.append(text.slice(shown));
    return out;
}

// --- blocks: each is its lines, and what makes nodes of them ---

const fence = /^ {0,3}(`{3,}|~{3,}) *([\w+#.-]*)[^`]*$/, heading = /^ {0,3}(#{1,6}) +(.*?) *#*$/, rule = /^ {0,3}([-*_])( *\1){2,} *$/;
const quote = /^ {0,3}> ?/, item = /^( *)([-*+]|\d{1,9}[.)])( +|$)/, bars = /^ *\|?( *:?-+:? *\|)+( *:?-+:?)? *\|? *$/;
const starts = line => fence.test(line) || heading.test(line) || rule.test(line) || quote.test(line) || /^ {0,3}([-*+]|1[.)]) +\S/.test(line);

function code(lines) {
    const open = fence.exec(lines[0]), end = lines.length > 1 && closes(lines.at(-1), open[1]) ? -1 : undefined;
    const text = lines.slice(1, end).join("\n"), copy = make("button", {type: "button", className: "plain", textContent: "Copy"});
    copy.addEventListener("click", () => put(text, copy));
    return make("figure", {className: "code"}, make("figcaption", {}, open[2] || "text", copy),
                make("pre", {tabIndex: 0}, make("code", {}, text)));
}

const closes = (line, open) => line.trim().length >= open.length && new RegExp(`^ {0,3}${open[0]}+ *$`).test(line);

function list(lines, deep) {
    const first = item.exec(lines[0]), ordered = /\d/.test(first[2]), out = make(ordered ? "ol" : "ul");
    if (ordered) out.start = parseInt(first[2]);
    const items = [];
    for (const line of lines) {
        const m = item.exec(line);
        if (m && m[1].length <= first[1].length + 1) items.push({wide: m[0].length, lines: [line.slice(m[0].length)]});
        else items.at(-1).lines.push(line.replace(new RegExp(`^ {0,${items.at(-1).wide}}`), ""));
    }
    for (const each of items) {
        const inside = nodes(split(each.lines.join("\n")), deep + 1), p = inside[0];
        out.append(make("li", {}, ...(p?.tagName === "P" ? [...p.childNodes, ...inside.slice(1)] : inside)));
    }
    return out;
}

function table(lines) {
    const cells = line => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map(c => c.trim());
    const row = (line, tag) => make("tr", {}, ...cells(line).map(c => make(tag, {}, inline(c.replaceAll("\\|", "|")))));
    return make("div", {className: "wide", tabIndex: 0}, make("table", {}, make("thead", {}, row(lines[0], "th")),
                make("tbody", {}, ...lines.slice(2).map(l => row(l, "td")))));
}

const kinds = {
    code,
    list,
    table,
    heading: lines => { const m = heading.exec(lines[0]); return make(`h${Math.min(m[1].length + 2, 6)}`, {}, inline(m[2])); },
    rule: () => make("hr"),
    quote: (lines, deep) => make("blockquote", {}, ...nodes(split(lines.map(l => l.replace(quote, "")).join("\n")), deep + 1)),
    paragraph: lines => make("p", {}, inline(lines.join("\n").trim())),
    thought: lines => make("details", {className: "thought"}, make("summary", {}, "Thoughts"), ...nodes(split(lines.join("\n")), 1)),
};

// How many lines from i on are one block, and of which kind.
function block(lines, i) {
    const line = lines[i], till = good => { let n = i + 1; while (n < lines.length && good(lines[n], n)) n++; return n; };
    const open = fence.exec(line);
    if (open) return ["code", Math.min(till(l => !closes(l, open[1])) + 1, lines.length)];
    if (heading.test(line)) return ["heading", i + 1];
    if (rule.test(line)) return ["rule", i + 1];
    if (quote.test(line)) return ["quote", till(l => quote.test(l))];
    if (line.includes("|") && bars.test(lines[i + 1] ?? "")) return ["table", till(l => l.includes("|"))];
    const m = item.exec(line);
    if (m) {
        // Up to a line that is neither an item nor set in behind a blank one.
        const mine = l => item.test(l) || /^ {2,}\S/.test(l);
        const end = till((l, n) => mine(l) || (l.trim() ? lines[n - 1].trim() && !starts(l) : mine(lines[n + 1] ?? "")));
        return ["list", end];
    }
    return ["paragraph", till(l => l.trim() && !starts(l))];
}

function split(text) {
    const out = [], lines = text.replaceAll("\t", "    ").split("\n");
    for (let i = 0; i < lines.length;) {
        if (!lines[i].trim()) { i++; continue; }
        const [kind, end] = block(lines, i);
        out.push({kind, lines: lines.slice(i, end)});
        i = end;
    }
    return out;
}

function nodes(blocks, deep) {
    return blocks.map(b => (deep > DEEP ? kinds.paragraph : kinds[b.kind])(b.lines, deep));
}

// What stands in <think> is a block of its own; of an open one the rest is.
function parts(text) {
    const m = /^(?:\s*<think>)?([^]*?)<\/think>/.exec(text) ?? /^\s*<think>([^]*)$/.exec(text);
    if (!m) return split(text);
    return [...(m[1].trim() ? [{kind: "thought", lines: m[1].split("\n")}] : []), ...split(text.slice(m[0].length))];
}

// Shows a text in a place. Blocks that are as they were keep their nodes: a text that grows is not made anew, and what
// a reader has selected stays so.
export function show(place, text) {
    const was = place.shown ?? [], now = parts(text);
    let same = 0;
    for (; same < was.length && same < now.length; same++)
        if (was[same].kind !== now[same].kind || was[same].lines.join("\n") !== now[same].lines.join("\n")) break;
    while (place.childNodes.length > same) place.lastChild.remove();
    place.append(...nodes(now.slice(same), 0));
    place.shown = now;
}

// --- the clipboard ---

// Browsers lend it to pages of this machine and of https alone; the older way works for others.
export async function put(text, button) {
    const before = button.textContent;
    let done = true;
    try { await navigator.clipboard.writeText(text); } catch {
        const area = make("textarea", {value: text, className: "unseen"});
        document.body.append(area);
        area.select();
        done = document.execCommand("copy");
        area.remove();
        button.focus();
    }
    button.textContent = done ? "Copied" : "Not allowed";
    setTimeout(() => { button.textContent = before; }, 1500);
}
