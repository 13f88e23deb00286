// Regions of which it is said that they scroll and do not, or that scroll and of which it is not said.
return Array.from(document.querySelectorAll('.scroll')).filter(region => region.clientWidth > 0).filter(region => {
  const scrolls = region.scrollWidth > region.clientWidth;
  return scrolls !== (parseFloat(getComputedStyle(region, '::before').maxHeight) > 0);
}).map(region => region.getAttribute('aria-label') || region.innerHTML.slice(0, 80));
