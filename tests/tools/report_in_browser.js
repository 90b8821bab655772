// Looks at a page of tools/report.py in the width that its address asks for (#400), and tells the
// frame around it what it finds.
const round = 1.5; // pixels that may be rounding
const words = /[\p{L}\p{N}]+/gu;
const longest = 24; // letters of a word that has to stay whole

const name = element => element.tagName + (element.className ? "." + element.className : "")
  + " " + element.textContent.slice(0, 40);

// Elements that reach beyond the page, or whose content reaches beyond them. What a box with a
// scroll bar holds may.
function beyond() {
  const found = [];
  for (const element of document.body.querySelectorAll("*:not(rect):not(title):not(script)")) {
    const box = element.getBoundingClientRect();
    const inside = element.parentElement.closest(".wide, pre");
    if (!inside && box.width > 0 && (box.right > innerWidth + round || box.left < -round))
      found.push(name(element));
  }
  for (const box of document.querySelectorAll(".wide, pre"))
    if (box.scrollWidth > box.clientWidth + round && getComputedStyle(box).overflowX !== "auto")
      found.push(name(box));
  return found;
}

// Words that begin in one line and end in another.
function cut() {
  const found = [];
  let seen = 0;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    if (!node.parentElement.checkVisibility() || node.parentElement.closest("svg, script, pre"))
      continue;
    for (const word of node.data.matchAll(words)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
      seen += lines.size > 0;
      if (lines.size > 1 && word[0].length <= longest)
        found.push(word[0] + " in " + name(node.parentElement));
    }
  }
  return [seen, found];
}

// Pictures that a tap on an area of theirs does not open at their full size, and close again.
function closed() {
  return [...document.querySelectorAll("figure")].filter(figure => {
    const image = figure.querySelector("img");
    const tap = () => (figure.querySelector("rect") || image)
      .dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true}));
    const small = image.clientWidth;
    tap();
    const open = image.clientWidth === image.naturalWidth && image.naturalWidth > small
      && figure.querySelector(".wide").scrollWidth >= image.naturalWidth
      && document.documentElement.scrollWidth <= innerWidth && lies(figure);
    tap();
    return !open || image.clientWidth !== small;
  }).map(figure => figure.id);
}

// Whether the areas of a picture lie over it.
function lies(figure) {
  const areas = figure.querySelector("svg"), image = figure.querySelector("img");
  if (!areas) return false;
  const over = areas.getBoundingClientRect(), under = image.getBoundingClientRect();
  return ["left", "top", "width", "height"].every(of => Math.abs(over[of] - under[of]) < round);
}

// What the pointer finds in the middle of the first area of a picture.
function titleAt(figure) {
  const area = figure.querySelector("rect");
  area.scrollIntoView({block: "center"});
  const box = area.getBoundingClientRect();
  const hit = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
  return hit && hit.localName === "rect" ? hit.textContent : "";
}

addEventListener("load", () => {
  const [seen, parts] = cut();
  const figures = [...document.querySelectorAll("figure")];
  parent.postMessage({
    page: location.pathname.split("/").pop(),
    asked: Number(location.hash.slice(1)),
    width: innerWidth,
    scrollWidth: document.documentElement.scrollWidth,
    beyond: beyond(),
    words: seen,
    cut: parts,
    scrolling: [...document.querySelectorAll(".wide")].filter(
      box => box.querySelector("table") && box.scrollWidth > box.clientWidth).length,
    pictures: figures.length,
    closed: closed(),
    silent: figures.filter(figure => !lies(figure) || !titleAt(figure)).map(figure => figure.id),
    title: titleAt(document.querySelector("#picture-scale")),
    chips: [...document.querySelectorAll("td .chip")].map(chip => [
      chip.closest("section").id, chip.parentElement.textContent,
      getComputedStyle(chip).backgroundColor]),
  }, "*");
});
