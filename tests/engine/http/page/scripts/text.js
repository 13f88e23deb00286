// All that can be read, values and titles too.
const more = Array.from(document.querySelectorAll('input, [title]'), one => (one.value || '') + ' ' + one.title);
return document.body.innerText + ' ' + more.join(' ');
