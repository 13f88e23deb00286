// Tabs that are not wholly in the window, or lie under something else.
return Array.from(document.querySelectorAll('.tabs a, .pills a, header nav a')).filter(tab => {
  tab.scrollIntoView({block: 'center'});
  const box = tab.getBoundingClientRect(), at = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return box.left < 0 || box.right > document.documentElement.clientWidth || !tab.contains(at);
}).map(tab => tab.textContent);
