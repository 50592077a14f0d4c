"""How horovod.run() has a function called on the ranks of a job: what travels, and both ends of it.

    caller -> horovodrun --results-fd N --stdin all -> agents -> ranks, each horovod.runner.run_task
      the task: 8 bytes of size, little-endian, then as many bytes, as the standard input of every rank
    ranks -> agents -> horovodrun -> caller
      the report of each: 8 bytes of size, then as many bytes, through descriptor 4; horovodrun passes it on in pieces

A process that an elastic job starts later gets the task as well. Reports are told apart by process; at the end
horovodrun says which count, in rank order.

All of it goes through the pipes and ssh connections of the agents, which nobody else can write to.
"""
