// Words that are broken inside: a range over one has a rectangle in each line that it stands in.
const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange();
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  if (node.parentElement.closest('.unseen, .skip, pre, script, style')) continue;
  for (const word of node.data.matchAll(/[A-Za-z]{2,24}/g)) {
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    const lines = new Set(Array.from(range.getClientRects(), one => Math.round(one.top)));
    if (lines.size > 1) found.push(word[0]);
  }
}
return found;
