// What sticks out of the window, apart from what scrolls by itself.
const scrolls = '.scroll, pre, .unseen, thead', edge = document.documentElement.clientWidth + 1;
return Array.from(document.querySelectorAll('main *, header *'))
  .filter(element => !element.closest(scrolls) && element.getBoundingClientRect().right > edge)
  .map(element => element.outerHTML.slice(0, 80));
