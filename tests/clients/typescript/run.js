// Runs one scenario in Node with the installed package: node run.js NAME SETTINGS, and prints what it returns as JSON.

import { run } from "./scenarios.js";

const [name, settings] = process.argv.slice(2);
process.stdout.write(JSON.stringify(await run(name, JSON.parse(settings))));
