"""The program in Lean that compares a proof with its statement, reading compiled files as data."""

PROGRAM = """\
import Lean
open Lean

/-- The constants that a compiled file declares itself. -/
def declared (file : System.FilePath) : IO (NameMap ConstantInfo) := do
  let (content, _) ← readModuleData file
  let mut constants : NameMap ConstantInfo := {}
  for info in content.constants do
    constants := constants.insert info.name info
  return constants

/-- The constants that the meaning of a constant rests on, and with `inProofs` also those of its proof. -/
def mentioned (info : ConstantInfo) (inProofs : Bool) : Array Name :=
  info.type.getUsedConstants ++ match info with
    | .defnInfo value => value.value.getUsedConstants
    | .opaqueInfo value => value.value.getUsedConstants
    | .thmInfo value => if inProofs then value.value.getUsedConstants else #[]
    | .inductInfo value => value.ctors.toArray
    | .ctorInfo value => #[value.induct]
    | _ => #[]

/-- Whether two constants of one name mean the same, if what they mention does. -/
def same (ours theirs : ConstantInfo) : Bool :=
  ours.levelParams == theirs.levelParams && ours.type == theirs.type && match ours, theirs with
    | .thmInfo _, .thmInfo _ => true
    | .axiomInfo _, .axiomInfo _ => true
    | .recInfo _, .recInfo _ => true
    | .quotInfo _, .quotInfo _ => true
    | .defnInfo a, .defnInfo b => a.value == b.value
    | .opaqueInfo a, .opaqueInfo b => a.value == b.value
    | .inductInfo a, .inductInfo b => a.ctors == b.ctors && a.numParams == b.numParams
    | .ctorInfo a, .ctorInfo b => a.induct == b.induct
    | _, _ => false

/-- Whether names mean the same in both files, down to the last constant that either declares. -/
partial def agree (ours theirs : NameMap ConstantInfo) (todo : List Name) (seen : NameSet) : Bool :=
  match todo with
  | [] => true
  | name :: rest =>
    if seen.contains name then agree ours theirs rest seen
    else match ours.find? name, theirs.find? name with
      | none, none => agree ours theirs rest (seen.insert name)
      | some a, some b =>
        if same a b then agree ours theirs ((mentioned a false).toList ++ rest) (seen.insert name) else false
      | _, _ => false

/-- The axioms below the names in `todo`. What is not there counts as one. -/
partial def axiomsBelow (environment : Environment) (todo : List Name) (seen : NameSet) (found : Array Name) :
    Array Name :=
  match todo with
  | [] => found
  | name :: rest =>
    if seen.contains name then axiomsBelow environment rest seen found
    else match environment.find? name with
      | none => axiomsBelow environment rest (seen.insert name) (found.push name)
      | some (.axiomInfo info) =>
        axiomsBelow environment (info.type.getUsedConstants.toList ++ rest) (seen.insert name) (found.push name)
      | some info => axiomsBelow environment ((mentioned info true).toList ++ rest) (seen.insert name) found

def main (arguments : List String) : IO UInt32 := do
  let [root, nonce, text] := arguments | return 2
  initSearchPath root
  let name := text.toName
  let ours ← declared "challenge/Proof.olean"
  let theirs ← declared "candidate/Proof.olean"
  let mut finding := "same"
  let mut axioms : Array Name := #[]
  if (ours.find? name).isNone then
    finding := "no statement"
  else if (theirs.find? name).isNone then
    finding := "missing"
  else if !agree ours theirs [name] {} then
    finding := "changed"
  else
    let environment ← importModules #[{ module := `Proof }] {}
    axioms := axiomsBelow environment [name] {} #[]
  let answer := Json.mkObj [
    ("nonce", toJson nonce), ("finding", toJson finding), ("axioms", toJson (axioms.map fun one => one.toString))]
  IO.println answer.compress
  return 0
"""
