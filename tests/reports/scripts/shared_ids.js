// Ids that two elements share: then clips and hatches of one figure would be those of another.
const ids = Array.from(document.querySelectorAll('[id]'), element => element.id);
return ids.filter((id, place) => ids.indexOf(id) !== place);
