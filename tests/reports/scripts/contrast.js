// The contrast between the colour of an element's text and the ground of the page.
const light = colour => {
  const parts = colour.match(/[\d.]+/g).slice(0, 3).map(part => part / 255);
  const [r, g, b] = parts.map(part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = light(getComputedStyle(document.body).backgroundColor);
const words = 'h1, h2, h3, p, td, th, dt, dd, a, summary, caption, li, span:not(.sign)';
return Array.from(document.querySelectorAll(words), element => {
  const text = light(getComputedStyle(element).color);
  return (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
}).reduce((least, one) => Math.min(least, one), 100);
