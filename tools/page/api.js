// api.js: asks the server: its key, its errors in words, its streams. Paths are relative, so that the page works behind a
// proxy that gives it a path.

export class Refusal extends Error {
    constructor(text, status = 0, code = null) {
        super(text);
        Object.assign(this, {status, code});
    }
}

// --- the key: asked for when the server wants one, kept as long as the tab is open ---

const door = document.getElementById("door"), field = document.getElementById("key"), why = document.getElementById("doorwhy");
const first = why.textContent;
let key = sessionStorage.getItem("lq.key") ?? "", asking = null;

// One question at a time, however many requests wait for it. False: whoever was asked has none.
function ask(refused) {
    if (asking) return asking;
    why.textContent = refused ? "The server does not know this key." : first;
    why.classList.toggle("bad", refused);
    field.value = "";
    door.showModal();
    asking = new Promise(done => {
        const end = given => {
            if (given) sessionStorage.setItem("lq.key", key = given);
            asking = null;
            door.onclose = null;
            door.close();
            done(Boolean(given));
        };
        door.querySelector("form").onsubmit = e => { e.preventDefault(); end(field.value.trim()); };
        document.getElementById("nokey").onclick = () => end("");
        door.onclose = () => end("");
    });
    return asking;
}

// --- requests ---

// Without `patient` nobody is asked for a key. Throws a Refusal, or what an abort throws.
export async function call(path, {body, signal, patient = true} = {}) {
    const mine = key, headers = {};
    if (body) headers["Content-Type"] = "application/json";
    if (mine) headers.Authorization = `Bearer ${mine}`;
    let r;
    try {
        r = await fetch(path, {method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal, cache: "no-store"});
    } catch (e) {
        if (signal?.aborted) throw e;
        throw new Refusal(/^[\x21-\x7e]*$/.test(mine) ? "The server can't be reached." : "The key has characters that none can have.");
    }
    if (r.ok) return r;
    if (r.status === 401 && patient && (key !== mine || await ask(Boolean(mine)))) return call(path, {body, signal, patient});
    let said = null;
    try { said = (await r.json()).error; } catch { /* a proxy's, say */ }
    throw new Refusal(said?.message ?? `The server answered ${r.status} ${r.statusText}`, r.status, said?.code);
}

// The events of a stream, each an object.
export async function* events(r) {
    const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    try {
        for (;;) {
            const {value, done} = await reader.read();
            if (done) throw new Refusal("The answer was cut off: the connection ended.");
            const blocks = (rest + value).split("\n\n");
            rest = blocks.pop();
            for (const each of blocks) {
                if (!each.startsWith("data: ")) continue;
                if (each === "data: [DONE]") return;
                const event = JSON.parse(each.slice(6));
                if (event.error) throw new Refusal(event.error.message, 200, event.error.code);
                yield event;
            }
        }
    } finally {
        reader.cancel().catch(() => {});
    }
}
