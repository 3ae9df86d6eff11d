"""A program that speaks Lean's command line and messages about a toy language, run as a text by the sandbox.

It knows theorems whose proofs are words of a small table, and the known ways to cheat. Its compiled files are JSON.
"""

import json
import os
import pathlib
import re
import shutil
import sys

VERSION, PREFIX = "Lean (version 4.0.0, fake)", "/usr"
PROOFS = {"n + 0 = n": ("by simp", "rfl", "by exact?"), "2 + 2 = 4": ("rfl", "by decide"), "a ≤ b": ("Nat.le_of_lt h",)}
DECLARATION = re.compile(r"(?:theorem|lemma) (\S+)((?: \([^)]*\))*) : (.*?)\s*:=\s*(.*)", re.DOTALL)


def command():
    """How tests start it: by its text, since the sandbox need not see this folder."""
    # Other users, as which the sandbox may run it, can often not reach a Python in somebody's home.
    python = shutil.which("python3", path="/usr/bin") or os.path.realpath(sys.executable)
    return (python, "-S", "-c", pathlib.Path(__file__).read_text(encoding="utf-8"))


class File:
    def __init__(self, text):
        self.text = text
        self.messages = []
        self.declared = {}
        self.context = self.included = ""
        self.tampered = ""
        self.unchecked = False

    def say(self, severity, data, line):
        position = {"line": line, "column": 0}
        message = {
            "severity": severity,
            "pos": position,
            "endPos": None,
            "data": data,
            "caption": "",
            "kind": "[anonymous]",
        }
        self.messages.append(json.dumps({"fileName": "Proof.lean", "keepFullRange": False, **message}))

    def read(self):
        """Returns False where the file ends the process."""
        for match in re.finditer(r"^(?!by\b)\S.*?(?=^(?!by\b)\S|\Z)", self.text, re.DOTALL | re.MULTILINE):
            if not self.command(match.group().strip(), self.text.count("\n", 0, match.start()) + 1):
                return False
        return True

    def command(self, text, line):
        word = text.split()[0]
        rest = text.removeprefix(word).strip()
        if text.startswith("#eval IO.Process.exit 0"):
            return False
        if word in ("#eval", "#print"):
            self.say("information", json.loads(rest.removeprefix("IO.println ")), line)
        elif word == "raw":
            self.messages.append(rest)
        elif word in ("variable", "include", "notation", "instance", "local", "set_option"):
            self.change(word, rest)
        elif word == "axiom":
            name, _, kind = rest.partition(" : ")
            self.declared[name] = {"kind": "axiom", "type": kind, "axioms": [name], "checked": True}
        elif declaration := DECLARATION.fullmatch(text):
            self.theorem(*declaration.groups(), line)
        elif word not in ("import", "open", "--"):
            self.say("error", f"unexpected {word}", line)
        return True

    def change(self, word, rest):
        if word == "variable":
            self.context += " " + rest
        elif word == "include":
            self.included = self.context
        elif word == "set_option":
            self.unchecked |= rest == "debug.skipKernelTC true"
        else:
            self.tampered = " (tampered)"

    def theorem(self, name, binders, kind, proof, line):
        binders += self.included
        axioms, checked = [], True
        if "sorry" in proof:
            axioms = ["sorryAx"]
            self.say("warning", "declaration uses 'sorry'", line)
        elif "native_decide" in proof:
            axioms = ["Lean.ofReduceBool"]
        elif proof.removesuffix(".elim") in self.declared:
            axioms = self.declared[proof.removesuffix(".elim")]["axioms"]
        elif f"({proof} : {kind})" in binders or proof in PROOFS.get(kind, ()) or (self.tampered and proof == "rfl"):
            axioms = ["propext"]
        elif self.unchecked:
            checked = False
        else:
            self.say("error", "type mismatch", line)
            return
        self.declared[name] = {"kind": "theorem", "type": binders + " : " + kind + self.tampered}
        self.declared[name] |= {"axioms": axioms, "checked": checked}


def compile_file(output, source):
    with open(source, encoding="utf-8") as text:
        file = File(text.read())
    finished = file.read()
    for message in file.messages:
        print(message)
    if not finished:
        return 0
    if any('"severity": "error"' in message for message in file.messages):
        return 1
    with open(output, "w", encoding="utf-8") as compiled:
        json.dump(file.declared, compiled)
    return 0


def read(path):
    with open(path, encoding="utf-8") as compiled:
        return json.load(compiled)


def compare(nonce, name):
    ours, theirs = read("challenge/Proof.olean"), read("candidate/Proof.olean")
    if name not in ours:
        finding = "no statement"
    elif name not in theirs:
        finding = "missing"
    else:
        same = all(ours[name][key] == theirs[name][key] for key in ("kind", "type"))
        finding = "same" if same else "changed"
    axioms = theirs[name]["axioms"] if finding == "same" else []
    print(json.dumps({"nonce": nonce, "finding": finding, "axioms": axioms}))
    return 0


def replay():
    return 0 if all(constant["checked"] for constant in read("candidate/Proof.olean").values()) else 1


def main(arguments):
    if arguments in (["--version"], ["--print-prefix"]):
        print(VERSION if arguments == ["--version"] else PREFIX)
        return 0
    if arguments[0] == "--run":
        return compare(*arguments[3:])
    if arguments == ["replay", "Proof"]:
        return replay()
    assert arguments[:3] == ["-j2", "--json", "-o"], arguments
    return compile_file(*arguments[3:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
