const { handle, produce, data } = require(process.argv[1]);
if (data(7).mark !== "job-mark:7:") throw new Error("no mark");
let sent = 0;
handle(3).then(() => produce(async () => {
  sent += 1;
  if (sent === 2) throw new Error("refused");
  if (sent === 5) process.kill(process.pid, "SIGTERM");
}));
