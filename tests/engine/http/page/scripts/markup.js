// Elements that only hostile data could have brought.
const found = 'img, iframe, object, embed, [onerror], [onload], [onclick], [style], main script, main style';
return Array.from(document.querySelectorAll(found)).map(element => element.outerHTML.slice(0, 200));
