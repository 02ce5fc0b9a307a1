"""What the variables and constraints of both solvers' models say; stages are s = 0, 1, ..., S - 1."""

from __future__ import annotations

#: By the name of the group; the source stands in brackets at the end.
SENTENCES = {
    "holds": "holds[v,s]: operator v is in stage s, from 0 at the input side",
    "done": "done[v,s]: operator v is in stage s or an earlier one; not of the last stage",
    "takes": "takes[t,s]: stage s receives tensor t from an earlier one",
    "leaves": "leaves[t,s]: stage s sends tensor t, which has one target",
    "sends": "sends[t,s,q]: stage s sends tensor t, which has several targets, to stage q",
    "replicas": "replicas[s,r]: stage s has r replicas; where their number is free",
    "keeps": "keeps[v,s]: stage s keeps the output of v, an operator of an earlier stage, as an input; for training",
    "awaited": "awaited[v,k,s]: the output of v, in stage s, is awaited by its k-th successor there or by a later one; "
    "for recomputation",
    "slowest": "time of the slowest stage over its replicas [Parmesan, Equation 1]",
    "one_stage": "every operator is in one stage: sum over s of holds[v,s] = 1",
    "counted": "it is done from that stage on, and at last: done[v,s] = done[v,s-1] + holds[v,s], done[v,S-1] = 1",
    "order": "a stage comes after those that feed it: where v is done, so is every u that feeds it",
    "not_empty": "no stage is empty: sum over v of holds[v,s] >= 1",
    "empty_first": "behind a stage that is used, none is empty: holds[v,s] <= sum over w of holds[w,s+1]",
    "one_number": "every stage has a number of replicas: sum over r of replicas[s,r] = 1",
    "some_replica": "a stage that is used has some replica: holds[v,s] + replicas[s,0] <= 1",
    "devices": "together the stages use no more than the devices: sum of r replicas[s,r] <= devices",
    "kept": "a stage keeps what comes from outside: the outputs of operators that are not in it, yet feed one that is",
    "alive": "an output is awaited as long as one of the stage's operators that it feeds, from the k-th on, is to come",
    "until": "what a later successor awaits, an earlier place does as well: awaited[v,k,s] <= awaited[v,k-1,s]",
    "memory": "every stage fits its memory, whichever operator runs [reconstructed]",
    "received": "a stage that runs a target of a tensor, and not its source, receives it: takes[t,s] >= "
    "holds[target,s] - holds[source,s] [Parmesan, Equation 3]",
    "left": "a tensor of one target leaves if its source is here and its target is not [Parmesan, Equation 3]",
    "sent": "a tensor of several is sent from the stage of its source to every stage that takes it: sends[t,s,q] >= "
    "holds[source,s] + takes[t,q] - 1 [Parmesan, Equation 3]",
    "stage_time": "the slowest stage is as slow as every stage: t(s) <= slowest, times r if it has r replicas and "
    "their number is free [Parmesan, Equation 1]",
    "forbidden": "an assignment with more bytes than fit, which only rounding admitted, is cut off",
    "used": "used[s]: stage s has an operator, for a requirement",
    "used_by": "a stage with an operator is used: used[s] >= holds[v,s]",
    "used_if": "a stage that is used has an operator: used[s] <= sum over v of holds[v,s]",
    "together": "together[u,v]: operators u and v are in one stage, for a requirement",
    "together_if": "then every stage holds both or none: together[u,v] <= 1 - holds[u,s] + holds[v,s]",
    "together_unless": "else none holds both: together[u,v] >= holds[u,s] + holds[v,s] - 1",
    "number": "number[v]: replicas of the stage that holds operator v, for a requirement",
    "number_least": "no fewer than that stage has: number[v] >= sum of r replicas[s,r] - D (1 - holds[v,s]); big-M: D "
    "devices",
    "number_most": "no more than that stage has: number[v] <= sum of r replicas[s,r] + D (1 - holds[v,s]); big-M: D "
    "devices",
}
