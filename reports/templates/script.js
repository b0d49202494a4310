// Sorting, filtering and searching. Everything else works without JavaScript.
(() => {
  "use strict";
  const make = (tag, parts = {}, ...inside) => {
    const made = Object.assign(document.createElement(tag), parts);
    made.append(...inside);
    return made;
  };
  const value = cell => {
    const text = cell ? cell.textContent.trim().replace("\u2212", "-") : "";
    const number = parseFloat(text);
    return Number.isFinite(number) ? number : text;
  };

  const sort = (table, head) => {
    const column = head.cellIndex, rows = [...table.tBodies[0].rows];
    const descending = head.getAttribute("aria-sort") === "ascending";
    for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const sign = descending ? -1 : 1;
    rows.sort((a, b) => {
      const [x, y] = [value(a.cells[column]), value(b.cells[column])];
      if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
      return sign * (typeof x === "number" ? x - y : x.localeCompare(y));
    });
    table.tBodies[0].append(...rows);
  };

  const filter = (table, method, verdict) => {
    const heads = [...table.tHead.rows[0].cells];
    const across = table.classList.contains("matrix");
    const fits = text => text.toLowerCase().includes(method.toLowerCase());
    for (const row of table.tBodies[0].rows) {
      if (!across) row.hidden = !fits(row.cells[0].textContent) || (verdict && row.dataset.verdict !== verdict);
      else [...row.cells].forEach((cell, at) => {
        if (!at) return;
        cell.hidden = !fits(heads[at].textContent);
        cell.classList.toggle("faint", Boolean(verdict) && cell.dataset.verdict !== verdict);
      });
    }
    if (across) heads.forEach((head, at) => { head.hidden = at > 0 && !fits(head.textContent); });
  };

  const tables = [...document.querySelectorAll("table[data-tools]")];
  for (const table of tables) {
    for (const head of table.tHead.rows[0].cells) {
      const button = make("button", { type: "button", title: "Sort by this column" });
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, head));
      head.append(button);
    }
  }
  const filtered = tables.filter(table => table.dataset.tools !== "sort");
  // With one row or column besides the head there is nothing to filter.
  const counted = table => table.classList.contains("matrix") ? table.tHead.rows[0].cells.length - 1 : table.tBodies[0].rows.length;
  const given = new Set([...document.querySelectorAll("[data-verdict]")].map(each => each.dataset.verdict));
  if (filtered.some(table => counted(table) > 1)) {
    const method = make("input", { type: "search", placeholder: "such as FedAvg" });
    const verdict = make("select", {}, ...[["", "any"], ["agrees", "\u2713 agrees"], ["undecided", "\u25d0 undecided"],
      ["differs", "\u2260 differs"], ["not comparable", "\u25cb not comparable"], ["none", "no verdict"]].filter(
      ([key]) => !key || given.has(key)).map(([key, name]) => make("option", { value: key }, name)));
    const apply = () => filtered.forEach(table => filter(table, method.value, verdict.value));
    method.addEventListener("input", apply);
    verdict.addEventListener("change", apply);
    const place = filtered[0].closest(".scroll") || filtered[0];
    const tools = make("div", { className: "tools" }, make("label", {}, "Method ", method));
    if (given.size > 1) tools.append(make("label", {}, "Verdict ", verdict));
    place.before(tools);
  }

  // The discrepancies of a paper, or those that a kind of evidence shows.
  const papers = [...document.querySelectorAll("section[data-paper]")];
  if (papers.length) {
    const entries = [...document.querySelectorAll("[data-kind]")], kinds = entry => entry.dataset.kind.split(" ");
    const choose = (name, values) => make("select", { name }, make("option", { value: "" }, "all"),
      ...[...new Set(values)].map(each => make("option", { value: each }, each)));
    const paper = choose("paper", papers.map(each => each.dataset.paper)), kind = choose("kind", entries.flatMap(kinds));
    const told = make("span", { className: "quiet" });
    told.setAttribute("role", "status");
    const apply = () => {
      let shown = 0;
      for (const section of papers) {
        const all = [...section.querySelectorAll("[data-kind]")];
        for (const entry of all) entry.hidden = Boolean(kind.value) && !kinds(entry).includes(kind.value);
        const found = all.filter(entry => !entry.hidden).length;
        section.hidden = !found || (Boolean(paper.value) && section.dataset.paper !== paper.value);
        if (!section.hidden) shown += found;
      }
      told.textContent = `${shown} of ${entries.length} shown`;
    };
    // A link to an entry shows it, whatever was chosen.
    const reveal = () => {
      const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (!target || !target.closest("[hidden]")) return;
      paper.value = kind.value = "";
      apply();
      target.scrollIntoView();
    };
    for (const each of [paper, kind]) each.addEventListener("change", apply);
    window.addEventListener("hashchange", reveal);
    // A browser may keep what was chosen when one comes back to the page.
    window.addEventListener("pageshow", () => { apply(); reveal(); });
    papers[0].before(make("div", { className: "tools" }, make("label", {}, "Paper ", paper), make("label", {}, "Evidence ", kind), told));
  }

  // Search: the list of all pages is a separate script, because a page opened from disk cannot fetch data.
  const up = document.documentElement.dataset.up, nav = document.querySelector(".masthead .wrap");
  const field = make("input", { type: "search", placeholder: "Search", ariaLabel: "Search the site" });
  const list = make("ul", { hidden: true });
  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = (window.PAGES || []).filter(page => words.every(word => page.join(" ").toLowerCase().includes(word)));
    list.replaceChildren(...found.slice(0, 30).map(([address, title, kind]) =>
      make("li", {}, make("a", { href: up + address }, title), make("span", {}, kind))));
    if (words.length && !found.length) list.append(make("li", {}, "Nothing found."));
    list.hidden = !words.length;
  };
  field.addEventListener("focus", () => {
    if (!window.PAGES) document.head.append(make("script", { src: `${up}assets/pages.js`, onload: show }));
  }, { once: true });
  field.addEventListener("input", show);
  field.addEventListener("keydown", event => { if (event.key === "Escape") { field.value = ""; show(); } });
  // A page without the rest of the site has no links to it, and nothing to search.
  if (nav.querySelector("a[href]")) nav.append(make("div", { className: "search" }, field, list));
})();
