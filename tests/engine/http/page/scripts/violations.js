// What axe-core finds, each with its elements.
return axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map(
  one => one.id + ' ' + one.nodes.map(node => node.target + ': ' + node.failureSummary).join(' | ')));
