"use strict";
// A page that follows its run: it asks the server that it came from for later states, until the tune has ended.

(() => {
  const TRIES = 3;
  const PAUSE_MS = 1000;
  const note = document.getElementById("live");
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const tell = (text) => { note.textContent = text; note.hidden = false; };

  async function asked(seen) {
    for (let tried = 0; tried < TRIES; tried++) {
      try {
        const answer = await fetch(`run.json?seen=${seen}`, { cache: "no-store" });
        if (answer.status === 204) return { version: seen, run: null, over: false };
        if (answer.ok) return await answer.json();
      } catch { /* the server is gone, or the connection was cut */ }
      await pause(PAUSE_MS);
    }
    return null;
  }

  async function follow() {
    let seen = DATA.version;
    for (let over = false; !over;) {
      const found = await asked(seen);
      if (found === null) {
        tell("The tune no longer answers: it has ended, or its connection is cut. This is the last state that was seen.");
        return;
      }
      while (!getSelection().isCollapsed) await pause(PAUSE_MS / 4); // somebody copies a text
      if (found.run !== null) PAGE.renew(found.run);
      ({ version: seen, over } = found);
    }
    tell("The tune has ended. This page stays as it is until it is closed; `triton-ops report` writes it to a file.");
  }

  tell("The tune goes on: this page follows it.");
  follow();
})();
