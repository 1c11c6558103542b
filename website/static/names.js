// What the theme leaves without a name: its two columns, and the page of the search.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
  if (document.querySelector("h1")) return;
  const title = document.createElement("h1");
  title.textContent = "Search";
  document.querySelector("article").prepend(title);
});
