"use strict";
// A page that follows its run: it asks the server that it came from for later states, until the tune has ended.

(() => {
  const TRIES = 3;
  const PAUSE_MS = 1000;
  const note = document.getElementById("live");
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const tell = (text) => { note.textContent = text; note.hidden = false; };
  const bar = document.getElementById("progress");
  let [run, seenAt] = [DATA.runs[0], Date.now()];

  // The share of the search that is done by the limit that is nearest, and the time that it needs at this pace.
  function showProgress() {
    const [most, seconds] = run.limits;
    const elapsed = run.elapsed_s + (Date.now() - seenAt) / 1000;
    const share = Math.min(1, Math.max(run.all / most, seconds ? elapsed / seconds : 0));
    const left = Math.min(share ? (elapsed * (1 - share)) / share : Infinity, seconds ? seconds - elapsed : Infinity);
    const rest = share === 1 ? "comparing the best" : Number.isFinite(left) ? `about ${inTime(left)} left` : "";
    bar.hidden = false;
    bar.value = share;
    tell(`The tune goes on: ${run.all} of at most ${most} trials, ${Math.floor(100 * share)} %${rest && `, ${rest}`}. This page follows it.`);
    setState(share === 1 ? "comparing" : `${Math.floor(100 * share)} %`);
  }

  const inTime = (seconds) => (seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.ceil(seconds / 60)} min`);

  function setState(state) {
    DATA.state = state;
    document.title = `${pageState(run)}${run.title}: tuning report`;
  }

  function stop(state, text) {
    clearInterval(ticking);
    bar.hidden = true;
    setState(state);
    tell(text);
  }

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
        stop("cut off", "The tune no longer answers: it has ended, or its connection is cut. This is the last state that was seen.");
        return;
      }
      while (!getSelection().isCollapsed) await pause(PAUSE_MS / 4); // somebody copies a text
      if (found.run !== null) {
        [run, seenAt] = [found.run, Date.now()];
        PAGE.renew(run);
      }
      ({ version: seen, over } = found);
    }
    stop("ended", "The tune has ended. This page stays as it is until it is closed; `triton-ops report` writes it to a file.");
  }

  const ticking = setInterval(showProgress, PAUSE_MS);
  showProgress();
  follow();
})();
