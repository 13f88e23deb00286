// Cells whose text is wider than they are, or breaks inside of a word.
return Array.from(document.querySelectorAll('th, dt, .badge, .tiles dd')).filter(cell => cell.clientWidth > 0).filter(cell => {
  const range = document.createRange();
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    for (const word of walker.currentNode.data.matchAll(/[a-z]+/gi)) {
      range.setStart(walker.currentNode, word.index);
      range.setEnd(walker.currentNode, word.index + word[0].length);
      if (range.getClientRects().length > 1) return true;
    }
  }
  return false;
}).map(cell => cell.textContent);
