// node ssh-server.mjs HOST_KEY ROOT [PUBLIC_KEY]
//
// An SSH server on loopback that runs `git receive-pack` beneath ROOT for who has the key of PUBLIC_KEY. It prints its port,
// and ends with its standard input.

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const { Server, utils } = createRequire(import.meta.url)("ssh2");
const [hostKey, root, allowedFile] = process.argv.slice(2);
const allowed = allowedFile && utils.parseKey(readFileSync(allowedFile));

const server = new Server({ hostKeys: [readFileSync(hostKey)] }, (client) => {
  client.on("error", () => {});
  client.on("authentication", (asked) => {
    const isKey = asked.method === "publickey" && allowed && asked.key.data.equals(allowed.getPublicSSH());
    if (!isKey) return asked.reject(["publickey"]);
    if (asked.signature && allowed.verify(asked.blob, asked.signature, asked.hashAlgo) !== true) return asked.reject();
    asked.accept();
  });
  client.on("session", (accept) => {
    accept().on("exec", (acceptExec, rejectExec, { command }) => {
      const name = /^git-receive-pack '\/?([\w./-]+)'$/.exec(command)?.[1];
      if (!name || name.includes("..")) return rejectExec();
      const channel = acceptExec();
      const git = spawn("git", ["receive-pack", join(root, name)], { stdio: "pipe" });
      channel.pipe(git.stdin);
      git.stdout.pipe(channel, { end: false });
      git.stderr.pipe(channel.stderr, { end: false });
      git.on("close", (code) => {
        channel.exit(code ?? 1);
        channel.end();
      });
    });
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.resume().on("end", () => process.exit(0));
