// Fills in a form and sends it, as somebody does who clicks its button.
const form = Array.from(document.forms).find(form => form.method === 'post' && form.getAttribute('action').endsWith(action));
for (const [name, value] of Object.entries(fields)) form.elements[name].value = value;
form.requestSubmit();
