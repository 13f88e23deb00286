// For each figure of the page: its anchor, and how many cells of its table have something to read.
return Array.from(document.querySelectorAll('figure'), figure => {
  const section = figure.closest('section');
  const cells = Array.from(section.querySelectorAll('details tbody td'));
  return [section.id, cells.filter(cell => cell.textContent.trim() && cell.textContent.trim() !== '\u2013').length];
});
