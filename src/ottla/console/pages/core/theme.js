// Before the first paint: the theme that this person has chosen, else that of the system.
(() => {
  const wanted = localStorage.getItem("ottla.theme");
  const isDark = wanted ? wanted === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
})();
