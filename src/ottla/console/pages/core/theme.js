// Applies the chosen theme, or that of the system, before the first paint.
(() => {
  const wanted = localStorage.getItem("ottla.theme");
  const isDark = wanted ? wanted === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
})();
