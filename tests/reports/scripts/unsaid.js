// What a reader that cannot see would miss: figures without words, tables without heads or caption, regions without a name.
const found = [];
for (const svg of document.querySelectorAll('figure svg'))
  if (svg.getAttribute('role') !== 'img' || (svg.getAttribute('aria-label') || '').length < 20) found.push('svg');
for (const table of document.querySelectorAll('table'))
  if (!table.caption || !table.querySelector('thead th[scope=col]') || !table.querySelector('tbody th[scope=row]'))
    found.push('table');
for (const region of document.querySelectorAll('[role=region]'))
  if (!region.getAttribute('aria-label')) found.push('region');
if (!document.documentElement.lang || !document.title) found.push('page');
return found;
