// The parts of a page that htmx asks for have come, and on the overview the first samples.
return document.readyState === 'complete' && !document.querySelector('.htmx-request, .pending')
  && (!document.querySelector('[data-live]') || !!document.querySelector('.live.on'));
