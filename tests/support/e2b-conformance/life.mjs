// One life after another by the official SDK: made, a command, ten megabytes of output, killed. For the bench, which does the
// same beside it. Prints one line of JSON per life: seconds on the wall, seconds of processor time, bytes that came.
import { createInterface } from 'node:readline'
import { Sandbox } from 'e2b'

// Each line on standard input asks for one more.
for await (const _ of createInterface({ input: process.stdin })) {
  const [wall, cpu] = [process.hrtime.bigint(), process.cpuUsage()]
  let bytes = 0
  const sandbox = await Sandbox.create('base', { timeoutMs: 300_000 })
  await sandbox.commands.run('true')
  await sandbox.commands.run(process.env.OUTPUT, { timeoutMs: 0, onStdout: text => { bytes += text.length } })
  await sandbox.kill()
  const used = process.cpuUsage(cpu)
  console.log(JSON.stringify({ wall: Number(process.hrtime.bigint() - wall) / 1e9, cpu: (used.user + used.system) / 1e6, bytes }))
}
