// theme.js: light, dark, or what the system says. Runs before anything is drawn, so that no wrong colour flashes.
"use strict";
try {
    const kept = localStorage.getItem("lq.theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch { /* a browser that keeps nothing has the system's */ }
