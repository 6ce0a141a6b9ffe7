// Without scripts everything is still there: a cell leads to its runs below, and lists keep their order.

// In MLflow's preview the page is a blob, which reaches no file and opens no page: there a path is text, and so is the
// address of a run, on the server that shows the page.
if (location.protocol === "blob:") {
  const [server] = location.href.match(/https?:\/\/[^/]+/) || ["{{ server }}"];
  for (const link of document.querySelectorAll("td.path a")) link.replaceWith(link.textContent);
  for (const link of document.querySelectorAll("td.run a")) {
    link.replaceWith(link.href.replace("{{ server }}", server));
  }
}

// A click on a cell shows its runs beside the page instead of jumping to them.
const dialog = document.getElementById("cell");
document.addEventListener("click", event => {
  const link = event.target.closest('a[href^="#cell-"]');
  const runs = link && document.getElementById(decodeURIComponent(link.hash.slice(1)));
  if (!runs || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const table = runs.closest("table").cloneNode(false);
  table.append(runs.closest("table").tHead.cloneNode(true), runs.cloneNode(true));
  table.tBodies[0].removeAttribute("id");
  table.querySelectorAll("button").forEach(button => button.replaceWith(button.textContent));
  document.getElementById("cell-title").textContent = runs.dataset.title;
  dialog.querySelector(".scroll").replaceChildren(table);
  dialog.showModal();
});
dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });

// A link into a folded part unfolds it, also where the browser does not do so itself.
const unfold = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", unfold);
unfold();

// A click on a column's heading sorts the list by it.
for (const table of document.querySelectorAll("table.list:not(.runs)")) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const upward = head.getAttribute("aria-sort") === "descending";
      const value = row => {
        const text = row.cells[column].textContent.trim().replace("\u2212", "-").replace(/^< /, "");
        const number = parseFloat(text);
        return Number.isNaN(number) ? text : number;
      };
      const order = (a, b) => {
        const [x, y] = [value(a), value(b)];
        if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
        return (x < y ? -1 : x > y ? 1 : 0) * (upward ? 1 : -1);
      };
      table.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", upward ? "ascending" : "descending");
      body.append(...[...body.rows].sort(order));
    });
  });
}
