// What is cut off at an edge of its region without a sign that it scrolls, and whether anything is cut off at all.
const cut = Array.from(document.querySelectorAll('.scroll')).filter(region => region.scrollWidth > region.clientWidth);
const bare = cut.filter(region => getComputedStyle(region).backgroundImage === 'none');
return [cut.length > 0, bare.map(region => region.getAttribute('aria-label'))];
