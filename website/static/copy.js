// A button in each block of code that copies it; of what is typed into a shell, the commands without prompts and output.
document.addEventListener("DOMContentLoaded", () => {
  for (const pre of document.querySelectorAll("div.highlight pre")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy this code");
    button.addEventListener("click", async () => {
      const text = pre.textContent;
      const typed = text.split("\n").filter((line) => line.startsWith("$ "));
      await navigator.clipboard.writeText(typed.length ? typed.map((line) => line.slice(2)).join("\n") : text);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    pre.parentElement.append(button);
  }
});
