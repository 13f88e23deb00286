// Elements that stick out of the window, apart from what scrolls by itself.
return Array.from(document.querySelectorAll('body *'))
  .filter(element => !element.closest('.scroll, pre, svg, details') && element.getBoundingClientRect().right > innerWidth + 1)
  .map(element => element.tagName + ' ' + element.className);
