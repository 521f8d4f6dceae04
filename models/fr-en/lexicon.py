"""The words of the demo language: what they mean, how they agree, what they go with.

Every table is a plain text block, one entry a line, so that a word is added by writing one line.
Classes (`person`, `food`, `read`, ...) say which nouns a verb takes and which adjectives a noun takes.
A French word stands for one English word only, in every context the grammar makes; where the
dictionary has two (`fille`: girl, daughter), the grammar avoids the context of the second.
"""

from dataclasses import dataclass, replace

VOWELS = "aeiouyhâàéèêëîïôöûùœ"
PERSONS = ["je", "tu", "il", "nous", "vous", "ils"]


@dataclass(frozen=True)
class Noun:
    """A noun with both its numbers in both languages. `kin` nouns take possessives."""

    fr: str
    frs: str
    gender: str
    en: str
    ens: str
    kind: str


@dataclass(frozen=True)
class Adjective:
    """Forms in the order m. sg., f. sg., m. pl., f. pl.; `bel` is the m. sg. before a vowel."""

    forms: tuple[str, str, str, str]
    bel: str
    en: str
    more: str
    before: bool
    kinds: frozenset[str]

    def agree(self, gender: str, plural: bool) -> str:
        return self.forms[(gender == "f") + 2 * plural]


@dataclass(frozen=True)
class Verb:
    """A verb: French forms, English forms, the noun classes of its object and what `le` stands for.

    `aux` is the auxiliary of the passé composé, `modal` an English auxiliary (can, must, would),
    `pron` the object pronoun in English: `it`, `him` (or her), or nothing.
    """

    inf: str
    present: tuple[str, ...]
    participle: str
    stem: str
    aux: str
    base: str
    third: str
    past: str
    objects: tuple[str, ...] = ()
    pron: str = ""
    modal: str = ""

    def future(self, person: int) -> str:
        return self.stem + ("ai", "as", "a", "ons", "ez", "ont")[person]


IRREGULAR_PLURALS = {
    "man": "men", "woman": "women", "child": "children", "mouse": "mice", "sheep": "sheep",
    "fish": "fish", "knife": "knives", "potato": "potatoes", "tomato": "tomatoes", "person": "people",
    "shelf": "shelves", "trousers": "trousers", "foot": "feet", "tooth": "teeth", "wolf": "wolves",
    "leaf": "leaves",
}


def en_plural(word: str) -> str:
    if word in IRREGULAR_PLURALS:
        return IRREGULAR_PLURALS[word]
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + "ies"
    return word + "s"


def fr_plural(word: str) -> str:
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith(("eau", "eu")):
        return word + "x"
    if word.endswith("al"):
        return word[:-2] + "aux"
    return word + "s"


def en_third(word: str) -> str:
    if word == "have":
        return "has"
    if word.endswith(("s", "x", "ch", "sh", "o")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + "ies"
    return word + "s"


# kind: french gender english, ...
NOUNS_TEXT = """
kin: frère m brother, sœur f sister, père m father, mère f mother, fils m son, ami m friend, amie f friend, voisin m neighbor, voisine f neighbor, oncle m uncle, tante f aunt, cousin m cousin, cousine f cousin
person: garçon m boy, fille f girl, homme m man, femme f woman, enfant m child, roi m king, reine f queen
job: étudiant m student, étudiante f student, professeur m teacher, médecin m doctor, avocat m lawyer, avocate f lawyer, ingénieur m engineer, musicien m musician, musicienne f musician, boulanger m baker, boulangère f baker, acteur m actor, actrice f actress, chanteur m singer, chanteuse f singer, journaliste m journalist, infirmière f nurse
animal: chat m cat, chien m dog, oiseau m bird, cheval m horse, souris f mouse, poisson m fish, vache f cow, lapin m rabbit, mouton m sheep
food: pomme f apple, orange f orange, œuf m egg, gâteau m cake, banane f banana, tomate f tomato, sandwich m sandwich, salade f salad, carotte f carrot, glace f icecream
mass: pain m bread, fromage m cheese, viande f meat, riz m rice, beurre m butter, chocolat m chocolate, soupe f soup
drink: eau f water, café m coffee, thé m tea, lait m milk, vin m wine, bière f beer, jus m juice
thing: clé f key, téléphone m phone, stylo m pen, sac m bag, montre f watch, couteau m knife, verre m glass, assiette f plate, ordinateur m computer, cadeau m gift, parapluie m umbrella, photo f picture
cloth: chemise f shirt, robe f dress, chapeau m hat, manteau m coat, chaussure f shoe, jupe f skirt
read: livre m book, lettre f letter, journal m newspaper, roman m novel, histoire f story, poème m poem
sound: chanson f song, radio f radio, musique f music
vehicle: voiture f car, vélo m bike, train m train, bateau m boat, avion m airplane, bus m bus
furniture: table f table, chaise f chair, lit m bed, boîte f box, bureau m desk, armoire f wardrobe
part: porte f door, fenêtre f window
home: maison f house, chambre f bedroom, cuisine f kitchen, jardin m garden, appartement m apartment, pays m country, ville f city, village m village, rue f street, parc m park
place: marché m market, gare f station, cinéma m cinema, restaurant m restaurant, hôpital m hospital, hôtel m hotel, bibliothèque f library, plage f beach, musée m museum, université f university, boulangerie f bakery, église f church, aéroport m airport, théâtre m theater, piscine f pool, banque f bank
nature: arbre m tree, fleur f flower, rivière f river, montagne f mountain, mer f sea, lac m lake, étoile f star
idea: question f question, idée f idea, problème m problem, réponse f answer, mot m word, leçon f lesson, langue f language, nom m name, film m movie, numéro m number
time: jour m day, mois m month, année f year, semaine f week, saison f season, heure f hour, couleur f color
"""

# masculine feminine english comparative kinds; `=` repeats the word before, `+` is the regular form.
# Kinds: P people, A animals, T things, F food and drink, K vehicles, H places, I ideas and writing.
# `grand` is added below: it is `big`, or `tall` of people.
BEFORE_TEXT = """
petit + small smaller PATH
beau/bel belle beautiful - PATH
vieux/vieil vieille old older PATKH
bon bonne good better PFI
mauvais + bad worse FI
jeune = young younger PA
joli + pretty prettier PTHK
gros grosse fat fatter A
nouveau/nouvel nouvelle new newer TKHI
"""
AFTER_TEXT = """
intelligent + intelligent - PA
riche = rich richer P
célèbre = famous - PH
gentil gentille kind kinder P
heureux heureuse happy happier PA
triste = sad sadder P
fatigué + tired - PA
malade = sick sicker PA
paresseux paresseuse lazy lazier PA
drôle = funny funnier P
timide = shy - P
fort + strong stronger PA
calme = quiet quieter PAH
français + french - PTK
anglais + english - PTK
italien italienne italian - PTK
allemand + german - PTK
japonais + japanese - PTK
américain + american - PTK
cher chère expensive - TFK
rouge = red redder TK
vert + green greener TK
bleu + blue bluer TK
noir + black blacker TKA
blanc blanche white whiter TKA
jaune = yellow yellower TK
gris + gray grayer TKA
propre = clean cleaner TKH
sale = dirty dirtier TKHA
lourd + heavy heavier T
léger légère light lighter T
rapide = fast faster KA
facile = easy easier I
difficile = difficult - I
important + important - I
intéressant + interesting - I
chaud + hot hotter F
froid + cold colder F
délicieux délicieuse delicious - F
frais fraîche fresh fresher F
"""
# Said of a subject only, never beside a noun.
PREDICATES_TEXT = """
prêt + ready - P
occupé + busy - P
seul + alone - P
perdu + lost - P
"""

KIND_TAGS = {
    "kin": "P", "person": "P", "job": "P", "animal": "A", "food": "F", "mass": "F", "drink": "F",
    "thing": "T", "cloth": "T", "read": "I", "sound": "I", "vehicle": "K", "furniture": "T",
    "part": "T", "home": "H", "place": "H", "nature": "", "idea": "I", "time": "",
}

# Regular verbs in -er: infinitive english past objects pronoun.
REGULAR_TEXT = """
manger eat ate food,mass it
regarder watch watched person,animal,job,sound,nature him
chercher look_for looked_for kin,person,thing,place,animal him
trouver find found thing,cloth,read,animal it
porter wear wore cloth it
fermer close closed part,furniture it
visiter visit visited place,home it
rencontrer meet met kin,person,job him
inviter invite invited kin,person,job him
aider help helped kin,person,job,animal him
écouter listen_to listened_to kin,job,sound -
préparer prepare prepared food,mass,drink it
laver wash washed cloth,vehicle,thing,part it
oublier forget forgot thing,idea,cloth it
casser break broke thing,furniture,part it
dessiner draw drew animal,nature,place,furniture it
commander order ordered food,drink it
utiliser use used thing,vehicle it
réparer repair repaired vehicle,furniture,part it
couper cut cut food,mass it
"""
INTRANSITIVE_TEXT = """
travailler work worked
chanter sing sang
danser dance danced
marcher walk walked
nager swim swam
pleurer cry cried
voyager travel traveled
"""
# infinitive; six present forms; participle; future stem; aux; english; past; objects; pronoun
IRREGULAR_TEXT = """
acheter; achète achètes achète achetons achetez achètent; acheté; achèter; avoir; buy; bought; food,thing,cloth,vehicle,read; it
vendre; vends vends vend vendons vendez vendent; vendu; vendr; avoir; sell; sold; food,thing,cloth,vehicle; it
boire; bois bois boit buvons buvez boivent; bu; boir; avoir; drink; drank; drink; it
lire; lis lis lit lisons lisez lisent; lu; lir; avoir; read; read; read; it
écrire; écris écris écrit écrivons écrivez écrivent; écrit; écrir; avoir; write; wrote; read; it
voir; vois vois voit voyons voyez voient; vu; verr; avoir; see; saw; kin,person,animal,place,nature,vehicle; him
prendre; prends prends prend prenons prenez prennent; pris; prendr; avoir; take; took; thing,vehicle,food; it
comprendre; comprends comprends comprend comprenons comprenez comprennent; compris; comprendr; avoir; understand; understood; idea,kin; -
attendre; attends attends attend attendons attendez attendent; attendu; attendr; avoir; wait_for; waited_for; kin,job,vehicle; -
perdre; perds perds perd perdons perdez perdent; perdu; perdr; avoir; lose; lost; thing,cloth; it
entendre; entends entends entend entendons entendez entendent; entendu; entendr; avoir; hear; heard; animal,person,sound; -
finir; finis finis finit finissons finissez finissent; fini; finir; avoir; finish; finished; read,food; it
choisir; choisis choisis choisit choisissons choisissez choisissent; choisi; choisir; avoir; choose; chose; cloth,food,thing,read; it
ouvrir; ouvre ouvres ouvre ouvrons ouvrez ouvrent; ouvert; ouvrir; avoir; open; opened; part,furniture; it
connaître; connais connais connaît connaissons connaissez connaissent; connu; connaîtr; avoir; know; knew; kin,person,job,place,home; him
avoir; ai as a avons avez ont; eu; aur; avoir; have; had; animal,kin,thing,cloth,vehicle,read,idea; -
faire; fais fais fait faisons faites font; fait; fer; avoir; make; made; food,mass; it
dormir; dors dors dort dormons dormez dorment; dormi; dormir; avoir; sleep; slept
courir; cours cours court courons courez courent; couru; courr; avoir; run; ran
rire; ris ris rit rions riez rient; ri; rir; avoir; laugh; laughed
rester; reste restes reste restons restez restent; resté; rester; être; stay; stayed
tomber; tombe tombes tombe tombons tombez tombent; tombé; tomber; être; fall; fell
arriver; arrive arrives arrive arrivons arrivez arrivent; arrivé; arriver; être; arrive; arrived
partir; pars pars part partons partez partent; parti; partir; être; leave; left
sortir; sors sors sort sortons sortez sortent; sorti; sortir; être; go_out; went_out
"""
# Verbs with a rule of their own in the grammar.
SPECIAL_TEXT = """
être; suis es est sommes êtes sont; été; ser; avoir; be; was
aller; vais vas va allons allez vont; allé; ir; être; go; went
venir; viens viens vient venons venez viennent; venu; viendr; être; come; came
habiter; habite habites habite habitons habitez habitent; habité; habiter; avoir; live; lived
aimer; aime aimes aime aimons aimez aiment; aimé; aimer; avoir; like; liked; food,mass,drink,animal,idea,sound,read,cloth; -
détester; déteste détestes déteste détestons détestez détestent; détesté; détester; avoir; hate; hated; food,mass,drink,animal,sound; -
parler; parle parles parle parlons parlez parlent; parlé; parler; avoir; speak; spoke
étudier; étudie étudies étudie étudions étudiez étudient; étudié; étudier; avoir; study; studied
apprendre; apprends apprends apprend apprenons apprenez apprennent; appris; apprendr; avoir; learn; learned
jouer; joue joues joue jouons jouez jouent; joué; jouer; avoir; play; played
donner; donne donnes donne donnons donnez donnent; donné; donner; avoir; give; gave; thing,read,food
montrer; montre montres montre montrons montrez montrent; montré; montrer; avoir; show; showed; thing,read,cloth
vouloir; veux veux veut voulons voulez veulent; voulu; voudr; avoir; want; wanted; food,drink,thing,animal,cloth; -
pouvoir; peux peux peut pouvons pouvez peuvent; pu; pourr; avoir; can; could
devoir; dois dois doit devons devez doivent; dû; devr; avoir; must; had_to
savoir; sais sais sait savons savez savent; su; saur; avoir; know_how; knew_how
voudrais; voudrais voudrais voudrait voudrions voudriez voudraient; -; -; avoir; like; liked; food,drink,thing,cloth; -
"""

NAMES = {
    "marie": "f", "julie": "f", "emma": "f", "sophie": "f", "anne": "f",
    "paul": "m", "thomas": "m", "lucas": "m", "nicolas": "m", "louis": "m",
}
CITIES = {c: c for c in "paris lyon rome berlin madrid tokyo".split()} | {"londres": "london", "lisbonne": "lisbon", "moscou": "moscow"}
# French with its preposition, English.
COUNTRIES = {
    "en france": "france", "en italie": "italy", "en espagne": "spain", "en allemagne": "germany",
    "en angleterre": "england", "en chine": "china", "au japon": "japan", "au canada": "canada",
    "en afrique": "africa", "au mexique": "mexico",
}
LANGUAGES = {
    "français": "french", "anglais": "english", "espagnol": "spanish", "italien": "italian",
    "allemand": "german", "chinois": "chinese", "japonais": "japanese", "russe": "russian",
}
SPORTS = {"football": "football", "tennis": "tennis", "rugby": "rugby"}
INSTRUMENTS = {"piano": "m piano", "guitare": "f guitar", "violon": "m violin"}
NUMBERS = {
    "deux": "two", "trois": "three", "quatre": "four", "cinq": "five", "six": "six", "sept": "seven",
    "huit": "eight", "neuf": "nine", "dix": "ten", "douze": "twelve", "vingt": "twenty",
}
HOURS = [n for n in NUMBERS if n not in ("douze", "vingt")]
DAYS = {
    "lundi": "monday", "mardi": "tuesday", "mercredi": "wednesday", "jeudi": "thursday",
    "vendredi": "friday", "samedi": "saturday", "dimanche": "sunday",
}
MONTHS = {
    "janvier": "january", "février": "february", "mars": "march", "avril": "april", "mai": "may",
    "juin": "june", "juillet": "july", "août": "august", "septembre": "september",
    "octobre": "october", "novembre": "november", "décembre": "december",
}
# `avoir` + noun is `to be` + adjective.
STATES = {
    "faim": "hungry", "soif": "thirsty", "peur": "afraid", "froid": "cold", "chaud": "hot",
    "sommeil": "sleepy", "raison": "right", "tort": "wrong",
}
WEATHER = {
    "il pleut": "it rains", "il neige": "it snows", "il fait froid": "it is cold",
    "il fait chaud": "it is hot", "il fait beau": "the weather is nice",
    "il fait mauvais": "the weather is bad", "il fait nuit": "it is dark",
}
ADVERBS = {"toujours": "always", "souvent": "often", "parfois": "sometimes", "rarement": "rarely"}
MANNERS = {
    "bien": "well", "très bien": "very well", "mal": "badly", "lentement": "slowly",
    "ensemble": "together", "ici": "here", "beaucoup": "a lot",
}
# Time phrases by tense.
TIMES = {
    "present": {
        "aujourd'hui": "today", "maintenant": "now", "le matin": "in the morning",
        "le soir": "in the evening", "tous les jours": "every day", "chaque matin": "every morning",
        "chaque soir": "every evening", "chaque semaine": "every week", "chaque année": "every year",
    },
    "past": {
        "hier": "yesterday", "hier matin": "yesterday morning", "hier soir": "last night",
        "la semaine dernière": "last week", "le mois dernier": "last month",
        "l' année dernière": "last year",
    },
    "future": {
        "demain": "tomorrow", "demain matin": "tomorrow morning", "demain soir": "tomorrow evening",
        "ce soir": "tonight", "la semaine prochaine": "next week", "le mois prochain": "next month",
        "l' année prochaine": "next year",
    },
}


def _nouns() -> dict[str, list[Noun]]:
    table: dict[str, list[Noun]] = {}
    for line in NOUNS_TEXT.strip().splitlines():
        kind, words = line.split(": ")
        for entry in words.split(", "):
            fr, gender, en = entry.split()
            table.setdefault(kind, []).append(Noun(fr, fr_plural(fr), gender, en, en_plural(en), kind))
    return table


def _adjectives(text: str, before: bool) -> list[Adjective]:
    out = []
    for line in text.strip().splitlines():
        m, f, en, more, tags = line.split()
        m, _, bel = m.partition("/")
        f = {"=": m, "+": m + "e"}.get(f, f)
        kinds = frozenset(kind for kind, tag in KIND_TAGS.items() if tag and tag in tags)
        forms = (m, f, fr_plural(m), fr_plural(f))
        out.append(Adjective(forms, bel or m, en, "more " + en if more == "-" else more, before, kinds))
    return out


def _present_er(inf: str) -> tuple[str, ...]:
    root = inf[:-2]
    soft = root + "e" if root.endswith("g") else root
    return (root + "e", root + "es", root + "e", soft + "ons", root + "ez", root + "ent")


def _verb(inf, present, participle, stem, aux, base, past, objects="", pron="", modal="") -> Verb:
    base, past = base.replace("_", " "), past.replace("_", " ")
    head, _, rest = base.partition(" ")
    third = (en_third(head) + " " + rest).strip()
    classes = tuple(objects.split(",")) if objects else ()
    return Verb(inf, tuple(present), participle, stem, aux, base, third, past, classes, pron.strip("-"), modal)


def _verbs() -> dict[str, Verb]:
    table = {}
    for text in (REGULAR_TEXT, INTRANSITIVE_TEXT):
        for line in text.strip().splitlines():
            inf, base, past, *rest = line.split()
            table[inf] = _verb(inf, _present_er(inf), inf[:-2] + "é", inf, "avoir", base, past, *rest)
    modal = {"pouvoir": "can", "devoir": "must", "voudrais": "would"}
    for text in (IRREGULAR_TEXT, SPECIAL_TEXT):
        for line in text.strip().splitlines():
            inf, present, *rest = [field.strip() for field in line.split(";")]
            rest += [""] * (7 - len(rest))
            table[inf] = _verb(inf, present.split(), *rest, modal.get(inf, ""))
    return table


NOUNS = _nouns()
BEFORE = _adjectives(BEFORE_TEXT, True)
AFTER = _adjectives(AFTER_TEXT, False)
PREDICATES = _adjectives(PREDICATES_TEXT, False)
_BIG_KINDS = frozenset(("animal", "thing", "furniture", "home", "place", "vehicle", "nature"))
_GRAND = ("grand", "grande", "grands", "grandes")
BEFORE += [
    Adjective(_GRAND, "grand", "big", "bigger", True, _BIG_KINDS),
    Adjective(_GRAND, "grand", "tall", "taller", True, frozenset(("kin", "person", "job"))),
]
VERBS = _verbs()
# `aimer` is to like a thing and to love a person.
VERBS["aimer (love)"] = replace(
    VERBS["aimer"], base="love", third="loves", past="loved", objects=("kin", "person"), pron="him"
)
INTRANSITIVE = [line.split()[0] for line in INTRANSITIVE_TEXT.strip().splitlines()] + ["dormir", "courir", "rire"]
MOVING = ["rester", "tomber", "arriver", "partir", "sortir"]
TRANSITIVE = [
    v for v in dict.fromkeys(
        line.split()[0].rstrip(";") for text in (REGULAR_TEXT, IRREGULAR_TEXT) for line in text.strip().splitlines()
    ) if VERBS[v].objects
]
